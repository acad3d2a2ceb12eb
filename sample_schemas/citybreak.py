"""A city trip as a program. `pml import citybreak.py -o citybreak.pml` writes its schema."""

from typing import Literal

from engine.programs import Arg, schema

LISBON = """\
This time we visit Lisbon, in Portugal.
The city climbs seven hills, and the trams that climb them are as yellow as lemons and older than most.
From the ferry the houses look like a drawer of coloured papers that somebody forgot to close.
The best sights are the Castle of Saint George, the Belem Tower and the Santa Justa Lift.
Walls are covered with tiles, and on some of them a whole ship goes by.
The best parks are the Star Garden and the Park of Nations.
The best markets are the Thieves' Market and the Market by the River.
At noon the streets empty, for the light is white and the grills are hot.
The kitchen is known for grilled sardines, salt cod and custard tarts.
People argue about which bakery is the oldest, and eat in all of them to be sure.
Good areas to stay are Alfama and Chiado.
In the evening somebody sings behind a half-open door, and nobody who listens is in a hurry.
The best time to visit is May.
The easiest way to get around is by tram."""


OSLO = """\
This time we visit Oslo, in Norway.
The town lies at the end of a long fjord, with its back to the forest and its feet in the water.
In June the sun hardly sets, and people swim after dinner as if it were noon.
The best sights are the Opera House, the Fortress and the Ship Museum.
The roof of the opera is a slope of white stone, and everybody walks up it at least once.
The best parks are the Sculpture Park and the Palace Park.
The best markets are the Food Hall and the Harbour Market.
Trams run to the edge of the woods, where the path begins right behind the last stop.
The kitchen is known for cured salmon, brown cheese and fish soup.
Coffee is taken seriously, and waffles are taken with it.
Good areas to stay are Grunerlokka and Frogner.
In the evening the ferries to the islands are full of people with grills under their arms.
The best time to visit is June.
The easiest way to get around is by ferry."""


KYOTO = """\
This time we visit Kyoto, in Japan.
The city lies in a bowl of green hills, and behind every second wall there is a garden nobody told you about.
In the morning the only sound is a broom on gravel.
The best sights are the Golden Pavilion, the Gate Path and the Silver Garden.
The path of red gates climbs for an hour, and after the first turn one is nearly alone.
The best parks are the Bamboo Grove and the Imperial Park.
The best markets are Nishiki Street and the Temple Market.
Tea is poured slowly, and it would be rude to look at a clock.
The kitchen is known for tofu, noodles and green tea sweets.
Shops close early, but the river bank stays open, and half the town sits there with its shoes off.
Good areas to stay are Gion and Arashiyama.
In the evening paper lamps are lit along the canal, one after another.
The best time to visit is November.
The easiest way to get around is by bus."""


QUEBEC = """\
This time we visit Quebec, in Canada.
It is the one town of its continent that still has its walls, and one can walk all round on top of them.
Streets as steep as stairs lead down to the harbour, and where they are too steep there are stairs.
The best sights are the Old Castle, the Citadel and the Lower Town.
Painters sit in a lane that is no wider than a table, and sell what they see from there.
The best parks are the Plains Park and the Garden of the Falls.
The best markets are the Old Port Market and the Winter Market.
From the terrace the river looks like a sea that has agreed to pass between two shores.
The kitchen is known for pea soup, maple pie and smoked ham.
In the cold months the whole town moves outside, with drums, and warms its hands on cups.
Good areas to stay are the Upper Town and Saint Roch.
In the evening fiddles are played in a cellar where there is no room to dance, and people dance.
The best time to visit is February.
The easiest way to get around is on foot."""

EDINBURGH = """\
This time we visit Edinburgh, in Scotland.
A castle sits on a rock in the middle of the town, and everything else has had to be built round it.
Between the tall houses lead lanes so narrow that two umbrellas cannot pass.
The best sights are the Castle, the Royal Mile and the Camera Tower.
Behind the palace rises a hill that one can climb before breakfast, and on the way down it usually rains.
The best parks are the Botanic Garden and the Meadows.
The best markets are the Farmers' Market and the Grassmarket.
Booksellers keep a chair by the fire, and nobody asks whether one means to buy.
The kitchen is known for oat cakes, smoked fish and shortbread.
Good areas to stay are Leith and Stockbridge.
In the evening three fiddles and a drum fit into a bar that holds twelve people.
The best time to visit is August.
The easiest way to get around is on foot."""

TRIESTE = """\
This time we visit Trieste, in Italy.
The largest square of the town has only three sides, for the fourth one is the sea.
A wind comes down from the plateau that is so strong that ropes are stretched along some streets.
The best sights are the White Castle, the Roman Theatre and the Lighthouse.
Writers have sat in its coffee houses for a hundred years, and some of their bills are still open.
The best parks are the Castle Park and the Garden of San Giusto.
The best markets are the Covered Market and the Fish Hall.
People swim from the pier after work, with their briefcases beside them on the stones.
The kitchen is known for bean soup, baked ham and nut rolls.
Good areas to stay are the Theresian Quarter and Cavana.
In the evening the lamps on the pier are lit, and couples walk to its end and back.
The best time to visit is September.
The easiest way to get around is by bus."""


@schema("citybreak")
def citybreak(
    p,
    city: Literal["lisbon", "oslo", "kyoto", "quebec", "edinburgh", "trieste"],
    days: Arg[5] = "5 days",
    children: bool = False,
    rain: bool = False,
    pace: Literal["slow", "full"] | None = None,
    train: bool = False,
):
    """You are a travel planner. Answer from the notes in short plans, and do not invent sights."""
    p.text("""Here is what I want.
I would like to see one city properly instead of five in passing, and to know the way to a bakery at the end.
My suitcase is small, my shoes are old and comfortable, and I carry a paper map because I like to write on it.
I prefer one good hour in a quiet place to three hurried hours in a famous one.""")
    p.text("I would like to travel for ", days, " in total.")
    match city:
        case "lisbon":
            p.text(LISBON)
        case "oslo":
            p.text(OSLO)
        case "kyoto":
            p.text(KYOTO)
        case "quebec":
            p.text(QUEBEC)
        case "edinburgh":
            p.text(EDINBURGH)
        case "trieste":
            p.text(TRIESTE)
    if children:
        p.text("""Two children come along, of six and nine years.
They walk well as long as there is something to climb on, and not at all when there is not.""")
    if rain:
        p.text("It may rain the whole week, so every day needs a roof that is worth being under.")
    match pace:
        case "slow":
            p.text("One main stop a day is enough; the rest of the day belongs to a bench.")
        case "full":
            p.text("Days may be full, from the first tram to the last lamp.")
    if train:
        p.text("We arrive by train, so the first day begins at the station and with tired legs.")
    p.text("Please plan each day with one main stop, and tell us what to try at the table.", end="")
