<?xml version="1.0" encoding="UTF-8"?>
<!-- Eight notes about an invented valley. Pick some and ask a question. -->
<schema name="documents">
  <system>
    You are a librarian. Answer only from the documents, and say so when they do not state it.
  </system>
  <user>
    Read these documents.
    <module name="lena-varga">
      About Lena Varga.
      Whoever crosses the valley on foot will sooner or later be overtaken by a green van with a wooden sign on its roof.
      Lena Varga works as a geologist.
      Stones have interested her since a flood carried a strange red boulder into the garden of her parents.
      Lena Varga was born in 1978.
      Lena Varga lives in Torlin.
      The house stands at the end of a lane that is too narrow for lorries, so the samples are carried up in a basket.
      At home Lena has a grey parrot.
      It has learned to say the names of nine minerals and uses them all when the telephone rings.
      For dinner Lena Varga likes lentils.
      On long evenings she sorts her finds by colour, which is of no scientific use, as she is the first to admit.
      Lena Varga plays the cello.
      A close friend of Lena Varga is Tomas Brekk.
      The two have walked the ridge together every autumn, whatever the weather.
    </module>
    <module name="tomas-brekk">
      About Tomas Brekk.
      If a lamp burns late on the market square, it is usually the one over his workbench.
      Tomas Brekk works as a potter.
      He digs the clay himself, lets it rest for two winters, and throws away more bowls than he sells.
      Tomas Brekk was born in 1969.
      Tomas Brekk lives in Salmora.
      Before that he spent eleven years at sea, mostly in kitchens, and he still cannot sleep when it is quiet.
      Besides the mother tongue, Tomas speaks Greek.
      The hobby of Tomas Brekk is chess.
      He plays by letter, one move a week, against people whom he has never met.
      The favourite dish of Tomas Brekk is plums.
      A white goose follows him to the square in the morning, though it is not his, and nobody knows whose it is.
    </module>
    <module name="torlin">
      About Torlin.
      The town climbs a slope that faces south, and every house has a stair where other towns have a street.
      Torlin lies on the river Ashen.
      In dry summers the river can be crossed on stones, and children keep a list of those who fell in.
      Torlin has 4180 inhabitants.
      The mayor of Torlin is Nadia Orsk.
      She was elected by eleven votes, counted three times, and has promised nothing but a new roof for the school.
      Torlin is known for its bells.
      They were cast in a shed behind the church until the shed burned down, and the recipe was thought lost for a century.
      Every June there is a festival in Torlin.
      For three days nobody locks a door, and visitors are fed whether they are hungry or not.
    </module>
    <module name="salmora">
      About Salmora.
      Most people know it only from the train, which stops there for two minutes and leaves with the smell of bread.
      Salmora lies on the river Dune.
      The river is wide, brown and lazy, and barges wait in it for days until the lock is opened.
      Salmora has 12650 inhabitants.
      The mayor of Salmora is Karim Helt.
      In his office there hangs a map on which the town is twice as large, drawn by an uncle with great hopes.
      Salmora is known for its pottery.
      The blue of the glaze comes from a stone that is found nowhere else, or so the sellers say.
      Every October there is a festival in Salmora.
      It ends with a race of wheelbarrows, and the winner has to pay for the soup.
    </module>
    <module name="ridgeway">
      About Ridgeway Works.
      What began in a barn with one lathe is now the largest employer of the valley.
      Ridgeway Works was founded in 1911.
      The founder of Ridgeway Works is Clara Holm.
      She had been told that a woman could not run a foundry, and had the letter framed and hung beside the door.
      Ridgeway Works has its seat in Torlin.
      Ridgeway Works makes bells.
      At first there were bells for cows, later for churches, and today there are also small ones for bicycles.
      Ridgeway Works employs 260 people.
      Ridgeway Works is led by Omar Linde.
      He knows every worker by name and every machine by its sound, and he takes the stairs.
    </module>
    <module name="dune-mills">
      About Dune Mills.
      The tall chimney by the lock has not smoked for thirty years, but nobody wants to see it go.
      Dune Mills was founded in 1954.
      Dune Mills was founded by Paul Mersk.
      He came with two looms on a cart and an idea that he explained to everyone who would stand still.
      Dune Mills has its seat in Salmora.
      Dune Mills makes carpets.
      The patterns are drawn by hand, and each weaver is allowed one deliberate mistake as a signature.
      Dune Mills employs 85 people.
      The director of Dune Mills is Grace Aumont.
      Under her the mill has begun to turn old sails into bags, which sell better than anyone expected.
    </module>
    <module name="harlow-bridge">
      About the Harlow Bridge.
      Seen from below it looks too thin to carry anything, and that was the idea.
      The Harlow Bridge was designed by Ines Corvo.
      She drew it on the back of a menu, and the menu can still be seen in the library, with a stain of soup on it.
      The Harlow Bridge was opened in 1936.
      On the first day an elephant from a circus was led across, since people trusted an elephant more than an engineer.
      The Harlow Bridge stands in Salmora.
      The height of the Harlow Bridge is 47 metres.
      In strong wind the cables hum, and musicians have tried to agree on the note.
      Lovers used to hang locks on the rail until the rail had to be replaced.
    </module>
    <module name="merlin-lamp">
      About the Merlin lamp.
      Night watchmen, campers and people who read in bed speak well of it, and hardly anybody else has heard of it.
      The Merlin lamp is made by Ashen Labs.
      The first one was built from a jam jar and the spring of an alarm clock.
      The price of the Merlin lamp is 64 euros.
      The Merlin lamp weighs 3 kilograms.
      Most of the weight is in the foot, so that it stays where it is put even on a boat.
      The Merlin lamp comes in amber.
      The warranty of the Merlin lamp lasts 7 years.
      If it fails earlier, it is mended for nothing, and the owner is sent a picture of the person who mended it.
    </module>
  </user>
  <assistant>I have read the documents. What would you like to know?</assistant>
</schema>
