<?xml version="1.0" encoding="UTF-8"?>
<!-- A trip plan with two kinds of trip and nine places (appendix A.1.2 of the Prompt Cache paper).
     Budget, season, company and an interest are optional. -->
<schema name="travel">
  <system>
    You are a travel planner known all over the world.
    You read the notes of the traveller and answer from them, in short plans that are easy to follow.
    Name the place, keep to the number of days, and do not invent sights that the notes do not mention.
    Every day begins with one good idea, and no day is so full that there is no time for a coffee and a look around.
  </system>
  <user>
    Here is what I want.
    Read it carefully before you answer, for I will ask only one short question at the end.
    <module name="trip-plan">
      After a long winter at the desk I am getting ready for a journey that I will remember.
      I do not travel to tick off a list, and I do not need to see everything.
      I want to wake up early, walk a lot, eat well, and be tired in the evening for a good reason.
      My suitcase is small, my shoes are old and comfortable, and I carry a paper map because I like to write on it.
      A day should have one fixed point, and the rest may be left to chance.
      I prefer one good hour in a quiet place to three hurried hours in a famous one.
      I would like to travel for <param name="duration" len="5" default="3 days"/> in total.
      The budget is not large, but it is not small either: a clean room, a window that opens, and enough left for dinner.
      I am happy to take a bus or a train, and I do not mind a long walk back to the hotel.
      Museums are fine when it rains; when the sun is out I would rather be in the street, by the water or on a hill.
      I eat almost everything, and I like to eat where the locals eat, standing up if need be.
      In the evening I read or listen to music, and I go to bed before midnight on most days.
      Souvenirs do not interest me, but a photograph of each place does.
      I travel with one friend who walks slowly, takes pictures of doors and windows, and never complains.
      We have seen our share of crowded squares, so please leave some room between one stop and the next.
      If there is a view, we want to see it at sunset; if there is a market, we want to see it in the morning.
      Please plan each day with one main stop, and tell us what to try at the table.
      <union>
        <module name="domestic">
          No passport is needed, and no long flight: the best of my own country is only a train ride away.
          I grew up here, and yet there are cities that I have passed a hundred times without getting off.
          This time we stay at home and visit <param name="city" len="10" default="Lyon"/>.
          Given its domestic charm, I expect short distances, a language I understand, and prices I can judge.
          The best sights are the Old Town Hall, the River Bridge and the Market Church.
          People who like to walk follow the river to the mill and come back through the gardens.
          The best parks are the Castle Garden and the Station Park.
          On Saturday the farmers bring their carts to the square, and by noon everything is sold.
          The best markets are the Saturday Market and the Old Hall.
          The kitchen is known for onion soup, plum pie and fresh cheese.
          The inns are simple, the portions are large, and the wine comes from the next village.
          Good areas to stay are Oldtown and Riverside.
          In the evening the students sit on the steps by the water, and somebody always has a guitar.
          The best time to visit is early autumn.
          The easiest way to get around is by bicycle.
        </module>
        <module name="overseas">
          I am yearning to tread on foreign soil, to hear a language I do not speak, and to pay with coins I do not know.
          My passport is ready, my neighbour has the key, and the plants have been watered.
          A long flight does not frighten me, as long as there is something to see on arrival.
          I would like to come home with a few words of the language and at least one dish that I can cook.
          <union>
            <module name="maldives">
              Welcome to the Maldives, in the Indian Ocean: a string of low islands where the water is warmer than the rain.
              From the air they look like rings of pale sand that somebody dropped into the blue and forgot.
              Few of the islands are longer than a walk before breakfast, and none of them is higher than a house.
              In the Maldives, the days are measured by the tide and the shade of a palm.
              The best sights are the Old Friday Mosque, the Coral Museum and the Fish Market of Male.
              The surfers come with the south swell, when the reefs begin to work.
              The best surf spots are Cokes Reef, Sultans Point and Jailbreaks.
              For dive sites, go to Banana Reef, Manta Channel and Maaya Wall.
              Divers hang on a rope in the current and wait, and the great rays come to be cleaned by small fish.
              The best beaches are Bikini Beach and Fulidhoo Beach.
              At night the shore sometimes glows, because tiny creatures in the waves give off a blue light.
              At the table, try mas huni, garudhiya soup and coconut curry.
              Tuna is eaten at breakfast, at noon and in the evening, and nobody seems to tire of it.
              Good areas to stay are Maafushi and Thulusdhoo.
              The guest houses there are run by families, and a room costs a tenth of what the resorts ask.
              The best season is early spring.
              The easiest way to get around is by ferry.
            </module>
            <module name="amazon">
              Welcome to the Amazon, the great green river basin of Brazil: less a place than a country of water and leaves.
              The river rises so high that whole forests stand in it for months, and the fish swim between the trees and eat the fruit.
              Most travellers come through Manaus, a city of two million with no road to the south.
              Life in the Amazon is slow, loud at night, and always a little damp.
              The best sights are the Manaus Opera House, the Meeting of the Waters and the Anavilhanas Islands.
              At the Meeting of the Waters a black river and a brown one run side by side for miles and refuse to mix.
              The best wildlife spots are the Mamori Lake, the Jau Reserve and the Janauari Marsh.
              Look for sloths in the high branches, pink dolphins at the bend of the river, and small monkeys everywhere.
              For walks, go to the Canopy Trail and the Rubber Path.
              A guide goes ahead with a long knife, and one learns quickly not to hold on to any trunk without looking first.
              The best-known markets are the Adolpho Market and the Banana Hall.
              Local dishes are tacaca soup, grilled tambaqui and fresh acai.
              The soup makes the lips tingle, which is how it should be.
              Good areas to stay are Adrianopolis and Ponta Negra.
              Bring light clothes with long sleeves, a lamp for the head, and more patience than usual.
              The best season is early summer.
              The easiest way to get around is by boat.
            </module>
            <module name="sahara">
              Welcome to the Sahara, beyond the last mountains of Morocco: a sea that happens to be made of sand.
              Nothing prepares the eye for it: the road simply stops, and the dunes begin.
              By day it is a land of light, by night a land of stars, and the hour between the two belongs to the tea kettle.
              In the Sahara, silence is never far, and it takes a day to get used to it.
              The best sights are the Kasbah of Ait Ben, the Draa Gate and the Todra Gorge.
              Caravans once needed fifty-two days from here to Timbuktu, and a painted sign still says so.
              The best viewpoints are the Great Dune, the Merzouga Rise and the Tizi Lookout.
              Climb before dawn, barefoot if you dare, and sit on the ridge until the shadows have gone.
              For walks, go to the Palm Loop and the Salt Path.
              For markets, go to the Rissani Bazaar and the Zagora Market.
              At the table, try lamb tagine, sand bread and mint tea.
              The bread is baked in the embers and beaten clean with a cloth before it is broken.
              Stay in Merzouga or Zagora.
              A night in a tent costs little, and the blankets are heavier than they look.
              Take a scarf, for the wind carries sand into everything, even into a closed watch.
              The best time to visit is late autumn.
              Getting around is easiest by camel.
            </module>
            <module name="tokyo">
              Welcome to Tokyo, the bustling capital of Japan: a city in which the quiet corner is never more than a few steps from the crowd.
              Trains arrive to the second, vending machines hum at every crossing, and behind the tall offices there are lanes
              where somebody waters a row of potted plants each morning.
              Tokyo rewards those who take their time and get off one station too early.
              The best sights are the Senso-ji Temple, the Imperial Palace and the Shibuya Crossing.
              Go to the crossing at night and watch from above, when a thousand umbrellas move at once and nobody collides.
              Few visitors know that the sea is close, and that the city takes its boards to the coast at the weekend.
              The best surf spots are Tsurigasaki Beach, Shidashita Point and Kugenuma Beach.
              The first train leaves before five, and the lockers at the station are long enough for a board.
              The best temples are the Meiji Shrine, the Zojo-ji Temple and the Nezu Shrine.
              Bow once before the gate, wash your hands at the basin, and keep to the side of the path, for the middle belongs to the gods.
              For markets, go to the Tsukiji Market and the Ameyoko Arcade.
              The tuna is gone by nine, but the small counters around the old halls stay open until noon.
              Its parks include the Ueno Park and the Shinjuku Garden.
              In spring whole offices sit there on blue sheets under the cherry trees.
              Among the museums, the Edo Museum and the Ghibli House stand out.
              At the table, try ramen, soba and tempura.
              Nobody minds if you slurp; it cools the noodles and pleases the cook.
              Good areas to stay are Asakusa and Shinjuku.
              Asakusa is low, old and cheap, while Shinjuku never sleeps and has a train to everywhere.
              The best time to visit is late spring.
              The easiest way to get around is by metro.
            </module>
            <module name="rome">
              Welcome to Rome, the eternal capital of Italy: a place of layers, in which every cellar is somebody's museum.
              One drinks from a fountain that an emperor paid for, and sits on a column that has lost its temple.
              The light is the colour of apricots, the traffic has its own rules, and cats sleep on marble.
              In Rome, bells are never far from the ear, and neither is a good argument.
              The best sights are the Colosseum, the Trevi Fountain and the Pantheon.
              Rome rewards those who come early: at six in the morning only the sweepers and the pigeons are there.
              The best museums are the Borghese Gallery and the Capitoline Museum.
              Tickets for the gallery are sold by the hour, and the hour is kept.
              For viewpoints, go to the Janiculum Hill, the Orange Terrace and the Pincio Lookout.
              From the terrace one can see every dome, and at sunset the whole town seems to hold its breath.
              The best markets are the Testaccio Market and the Trionfale Hall.
              The best walks are the Appian Path and the Tiber Promenade.
              The old road runs straight out of the city between pines and tombs, and on Sunday no cars are allowed.
              At the table, try cacio e pepe, fried artichokes and gelato.
              Coffee in Rome is taken standing, in three sips, and milk is for the morning only.
              Good areas to stay are Trastevere and Monti.
              The best season is early autumn.
              The easiest way to get around is by tram.
            </module>
            <module name="capetown">
              Welcome to Cape Town, at the foot of a flat mountain in South Africa: it lies between two oceans and changes its weather by the hour.
              A cloud that locals call the tablecloth slides over the edge of the rock, hangs there, and dissolves before it touches a roof.
              There are vineyards half an hour away, penguins in the parking lot, and a wind that can take a hat to the harbour.
              Life in Cape Town is outdoors whenever the wind allows it.
              The best sights are the Castle of Good Hope, the Robben Island and the Clock Tower.
              The best viewpoints are the Table Mountain, the Lions Head and the Signal Hill.
              The cable car stops when it blows, so take the first clear morning and do not wait for a better one.
              For surf spots, go to Muizenberg Beach, Big Bay and Long Point.
              Beginners learn in front of a row of painted huts, where the waves are long and forgiving.
              The best beaches are Boulders Beach and Camps Bay.
              For wildlife spots, go to the Cape Reserve and the Seal Island.
              Baboons can open a car door, so keep it locked and eat your lunch inside.
              Local dishes are bobotie pie, grilled snoek and koeksisters.
              Good areas to stay are Gardens and Sea Point.
              The best time to visit is late summer.
              Getting around is easiest by bus.
            </module>
            <module name="sydney">
              Welcome to Sydney, the shimmering harbour city of Australia: it begins at the water and never goes far from it.
              Office workers take the ferry home, schoolchildren learn to swim before they learn to spell, and the beach is open every day.
              The sails of the Opera House are not white when you come close, but cream and grey, like the inside of a shell.
              In Sydney, swimmers are out before the sun is, and the coffee is ready when they come back.
              The best sights are the Opera House, the Harbour Bridge and the Rocks.
              Walk over the bridge rather than under it, on the side that looks to the sea.
              The best surf spots are Bondi Beach, Manly Point and Cronulla Reef.
              Swim between the flags, and ask a lifeguard about the rip before you paddle out.
              For beaches, go to Coogee Beach, Shelly Beach and Balmoral Cove.
              The best walks are the Coast Path and the Spit Trail.
              The path climbs from one bay to the next, past pools cut into the rock that fill up with every high tide.
              Its parks include the Royal Garden and the Barangaroo Park.
              White birds with curved beaks wander among the picnics and steal what they can.
              For markets, go to the Paddington Market and the Fish Market.
              At the table, try grilled barramundi, meat pie and lamingtons.
              Good areas to stay are Newtown and Manly.
              The best season is late spring.
              The easiest way to get around is by ferry.
            </module>
            <module name="buenosaires">
              Welcome to Buenos Aires, the wide and restless capital of Argentina: it eats late, talks late and dances later still.
              Its avenues were drawn with a ruler, its cafes were furnished by grandparents, and its bookshops are open at midnight.
              An old theatre has become a bookshop, and one reads on the stage, with a coffee, under the painted ceiling.
              The evenings of Buenos Aires are long and generous.
              The best sights are the Colon Theatre, the Pink House and the May Square.
              For night spots, go to the Tortoni Lounge, the Sur Club and the Catedral Bar.
              At the dance halls nobody asks with words: a look across the room and a nod are enough.
              The best museums are the Malba Gallery and the Evita Museum.
              For markets, go to the San Telmo Market and the Mataderos Fair.
              On Sunday the stalls fill a mile of cobbled street with silver spoons, blue bottles and old records.
              Its parks include the Palermo Wood and the Rose Garden.
              The best walks are the Boca Walk and the Canal Promenade.
              Local dishes are empanadas, grilled beef and alfajores.
              Dinner before nine is for tourists and small children.
              Good areas to stay are Palermo and Recoleta.
              The best time to visit is early spring.
              The easiest way to get around is by bus.
            </module>
            <module name="lisbon">
              Welcome to Lisbon, the bright and hilly capital of Portugal: it looks at the river as if it still expected a ship.
              The pavements are small white stones polished by shoes, the walls are tiled in blue, and laundry hangs across the lanes.
              An old yellow tram squeezes around corners so narrow that one could shake hands with the people at their windows.
              In Lisbon, hills are never far, and every one of them has somebody resting at the top.
              The best sights are the Belem Tower, the Carmo Arch and the Commerce Square.
              For viewpoints, go to the Graca Terrace, the Senhora Lookout and the Castle Hill.
              Bring something to drink, sit on the wall, and wait until the lamps go on along the water.
              The best surf spots are Carcavelos Beach, Ribeira Bay and Coxos Reef.
              The train follows the shore, and the first boards can be rented a minute from the platform.
              The best night spots are the Fado Cellar and the Pink Street Bar.
              When a singer begins, the waiters stop, the kitchen door is closed, and even the glasses are quiet.
              For museums, go to the Tile Museum and the Coach Museum.
              At the table, try grilled sardines, green soup and custard tarts.
              The tarts are eaten warm, with cinnamon, and never only one.
              Good areas to stay are Alfama and Graca.
              The best season is early summer.
              The easiest way to get around is by tram.
            </module>
          </union>
        </module>
      </union>
    </module>
    <union>
      <module name="small-budget">
        The budget is tight this year.
        Whatever is saved on beds can be spent on tickets, and nobody ever came home and praised a pillow.
        So sleep in shared hostels.
      </module>
      <module name="generous-budget">
        I have saved for years, so the budget is generous.
        The suitcase has been carried up enough stairs, and for once somebody else may carry it.
        The plan should reserve private rooms.
      </module>
    </union>
    <union>
      <module name="in-april">
        We travel in April.
        The trees are not sure yet, and neither is the sky.
        It is best to carry light umbrellas.
      </module>
      <module name="in-december">
        We travel in December.
        The lamps go on at four, and a bench is something to walk past.
        A good plan will look for heated museums.
      </module>
    </union>
    <union>
      <module name="with-children">
        We are a family with two children.
        The younger one counts cats, the elder one counts the days until we go home.
        Please look for open playgrounds.
      </module>
      <module name="with-grandmother">
        I travel with my grandmother.
        She has seen more than all of us, and would like to see the rest sitting down.
        The plan should prefer slow boats.
      </module>
    </union>
    <union>
      <module name="loves-markets">
        Churches I forget, but I could still draw every stall at which I ever bought an orange.
        Above all I want to see the markets.
      </module>
      <module name="loves-viewpoints">
        A town has to be seen from above before it can be understood from within.
        What I love most are the viewpoints.
      </module>
    </union>
  </user>
  <assistant>
    I would love to help. I have read the notes about the place.
    Ask me for a plan, and tell me what I should highlight.
  </assistant>
</schema>
