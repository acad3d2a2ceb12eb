<?xml version="1.0" encoding="UTF-8"?>
<!-- Documents in every prompt, and fifteen optional examples of two turns each. -->
<schema name="few-shot">
  <system>
    You are a librarian. Answer only from the documents, and say so when they do not state it.
  </system>
  <user>
    Read these documents.
    <module name="oda-marsh">
      About Oda Marsh.
      If a bell rings in the lane at noon, it is one of hers.
      Oda Marsh works as a clockmaker.
      Oda Marsh was born in 1958.
      She keeps eleven clocks in the hall, and no two of them agree.
      Oda Marsh lives in Stellan.
      On Sundays she winds them all, which takes until lunch.
      For dinner Oda Marsh likes mushrooms.
      A close friend of Oda Marsh is Pavel Dorn.
      They have played cards every Thursday for thirty years, and nobody knows the score.
    </module>
    <module name="pavel-dorn">
      About Pavel Dorn.
      He has crossed the pass so often that the dogs no longer bark at him.
      Pavel Dorn works as a postman.
      Pavel Dorn was born in 1971.
      His bag holds letters, a loaf and a book of maps.
      Pavel Dorn lives in Millbrook.
      Besides the mother tongue, Pavel Dorn speaks Italian.
      He learned it from a radio that could not be switched off.
      The hobby of Pavel Dorn is fishing.
      What he catches he draws, and then he lets it go.
    </module>
    <module name="ines-calder">
      About Ines Calder.
      Her window looks out on the ferry, and she knows every captain by his whistle.
      Ines Calder works as a painter.
      Ines Calder was born in 1984.
      She mixes her greens from three leaves and will not name the third.
      Ines Calder lives in Stellan.
      Ines Calder plays the flute.
      Children follow her home when she practises on the way.
      At home Ines Calder has a white rabbit.
      It sits in the window and is taken for a toy.
    </module>
    <module name="stellan">
      About Stellan.
      A town of narrow bridges and wide hats lies where the valley opens.
      The river Aske flows through Stellan.
      In spring it takes a boat or two along.
      Stellan is known for its lace.
      It is sold by weight, and the scales are older than the town hall.
      Stellan has 4210 inhabitants.
      Most of them know how to mend a roof.
      The festival of Stellan takes place in September.
      Whoever has a drum brings it.
    </module>
    <module name="millbrook">
      About Millbrook.
      There are two bakers in this place and one opinion on bread.
      Millbrook has a mayor called Greta Sund.
      She rings the bell herself when a council begins.
      Millbrook is known for its pears.
      They are small and last until March.
      Its fountain freezes in some winters, and then the whole town skates.
      Millbrook has 1874 inhabitants.
      The festival of Millbrook takes place in May.
      It ends when the last lantern has gone out.
      A chestnut stands before the school, and no child has ever been able to count its branches twice alike.
    </module>
    <module name="greta-sund">
      About Greta Sund.
      When the council cannot agree, she opens all the windows and waits.
      Greta Sund works as a vet.
      Greta Sund was born in 1966.
      Every sheep between the two towns has been lifted by her at least once.
      Greta Sund lives in Millbrook.
      The hobby of Greta Sund is chess.
      She plays by letter, and the letters take a long time on purpose.
      At home Greta Sund has three cats, and each believes that it is the only one.
    </module>
    <module name="gannet-tower">
      About Gannet Tower.
      On the ridge between the two towns stands a tower that nobody needs and everybody likes.
      The Gannet Tower was built in 1862.
      Its lamp was lit with oil once and with great care ever after.
      The Gannet Tower has 211 steps.
      From the top one sees three lakes, or none.
      On the first of May the choirs of Stellan and Millbrook climb it and sing against each other.
      The wind decides who has won.
      The key hangs behind the door of the bakery in Stellan, and whoever takes it brings back a loaf.
    </module>
  </user>
  <assistant>I have read the documents.</assistant>
  <module name="ask-job">
    <user>What does Oda Marsh do for a living?</user>
    <assistant>Oda Marsh works as a clockmaker.</assistant>
  </module>
  <module name="ask-home">
    <user>Where does Pavel Dorn live?</user>
    <assistant>Pavel Dorn lives in Millbrook.</assistant>
  </module>
  <module name="ask-birth">
    <user>When was Ines Calder born?</user>
    <assistant>Ines Calder was born in 1984.</assistant>
  </module>
  <module name="ask-dinner">
    <user>What does Oda Marsh like for dinner?</user>
    <assistant>Oda Marsh likes mushrooms.</assistant>
  </module>
  <module name="ask-language">
    <user>Which language does Pavel Dorn speak?</user>
    <assistant>Pavel Dorn speaks Italian.</assistant>
  </module>
  <module name="ask-music">
    <user>Which instrument does Ines Calder play?</user>
    <assistant>Ines Calder plays the flute.</assistant>
  </module>
  <module name="ask-friend">
    <user>Who is a close friend of Oda Marsh?</user>
    <assistant>A close friend of Oda Marsh is Pavel Dorn.</assistant>
  </module>
  <module name="ask-pet">
    <user>Which pet does Ines Calder have?</user>
    <assistant>Ines Calder has a white rabbit.</assistant>
  </module>
  <module name="ask-river">
    <user>Which river flows through Stellan?</user>
    <assistant>The river Aske flows through Stellan.</assistant>
  </module>
  <module name="ask-craft">
    <user>What is Stellan known for?</user>
    <assistant>Stellan is known for its lace.</assistant>
  </module>
  <module name="ask-people">
    <user>How many people live in Millbrook?</user>
    <assistant>Millbrook has 1874 inhabitants.</assistant>
  </module>
  <module name="ask-festival">
    <user>When does the festival of Millbrook take place?</user>
    <assistant>The festival of Millbrook takes place in May.</assistant>
  </module>
  <module name="ask-not-stated">
    <user>Which pet does Pavel Dorn have?</user>
    <assistant>The documents do not state that.</assistant>
  </module>
  <module name="ask-not-stated-of-a-town">
    <user>Which river flows through Millbrook?</user>
    <assistant>The documents do not state that.</assistant>
  </module>
  <module name="ask-two-facts">
    <user>What is the town where Ines Calder lives known for?</user>
    <assistant>Stellan is known for its lace.</assistant>
  </module>
</schema>
