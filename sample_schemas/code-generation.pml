<?xml version="1.0" encoding="UTF-8"?>
<!-- The source files of a small game, one module each (appendix A.1.1 of the Prompt Cache paper). -->
<schema name="code-generation">
  <system>You write short Python programs from the classes in the files.</system>
  <user>
    These are the source files.
    <module name="unit.py"><![CDATA[
      # unit.py: the class Unit with move, attack, heal, distance and describe
      # Example: unit = Unit(), then unit.move()
      import math

      class Unit:
          """A piece on the map with a name and some health."""

          def __init__(self, name="scout", health=10, speed=2):
              self.name = name
              self.health = health
              self.speed = speed
              self.x = 0
              self.y = 0

          def move(self, dx=1, dy=0):
              """Walk a number of steps in both directions."""
              self.x += dx * self.speed
              self.y += dy * self.speed
              return self.x, self.y

          def attack(self, other=None):
              """Take some health from another unit."""
              if other is None:
                  return 0
              damage = min(other.health, 3)
              other.health -= damage
              return damage

          def heal(self, amount=1):
              self.health += amount
              return self.health

          def distance(self, other):
              return math.hypot(self.x - other.x, self.y - other.y)

          def describe(self):
              return f"{self.name} at {self.x}, {self.y} with {self.health}"
    ]]></module>
    <module name="map.py"><![CDATA[
      # map.py: the class Map with draw, build, is_free and clear
      # Example: map = Map(), then map.draw()

      class Map:
          """A board of cells that knows where the walls are."""

          def __init__(self, width=12, height=8):
              self.width = width
              self.height = height
              self.walls = set()

          def draw(self):
              """Print the board row by row."""
              for y in range(self.height):
                  row = ""
                  for x in range(self.width):
                      row += "#" if (x, y) in self.walls else "."
                  print(row)

          def build(self, x=0, y=0):
              """Put a wall on one cell."""
              if 0 <= x < self.width and 0 <= y < self.height:
                  self.walls.add((x, y))
              return len(self.walls)

          def is_free(self, x, y):
              inside = 0 <= x < self.width and 0 <= y < self.height
              return inside and (x, y) not in self.walls

          def clear(self):
              self.walls = set()
    ]]></module>
    <module name="player.py"><![CDATA[
      # player.py: the class Player with join, add, win, strongest and lost
      # Example: player = Player(), then player.join()

      class Player:
          """Somebody who owns units and earns a score."""

          def __init__(self, name="Ada", score=0):
              self.name = name
              self.score = score
              self.units = []

          def join(self):
              """Say hello at the start of a game."""
              print(f"{self.name} has joined.")
              return True

          def add(self, unit):
              """Take a unit into the own army."""
              self.units.append(unit)
              return len(self.units)

          def win(self, points=1):
              self.score += points
              return self.score

          def strongest(self):
              """The unit with the most health, or nothing."""
              best = None
              for unit in self.units:
                  if best is None or unit.health > best.health:
                      best = unit
              return best

          def lost(self):
              return all(unit.health <= 0 for unit in self.units)
    ]]></module>
    <module name="game.py"><![CDATA[
      # game.py: the class Game with start, enter, next_turn and over
      # Example: game = Game(), then game.start()
      import random

      class Game:
          """Turns, players and the end of it all."""

          def __init__(self, title="Skirmish", limit=20):
              self.title = title
              self.limit = limit
              self.turn = 0
              self.players = []

          def start(self):
              """Shuffle the players and begin with the first turn."""
              random.shuffle(self.players)
              self.turn = 1
              print(self.title)

          def enter(self, player):
              if player not in self.players:
                  self.players.append(player)
              return len(self.players)

          def next_turn(self):
              """Go on by one turn until the limit is reached."""
              if self.turn >= self.limit:
                  return None
              self.turn += 1
              return self.players[self.turn % len(self.players)]

          def over(self):
              standing = [player for player in self.players if not player.lost()]
              return len(standing) < 2 or self.turn >= self.limit
    ]]></module>
    <module name="database.py"><![CDATA[
      # database.py: the class Database with open, save, find and best
      # Example: database = Database(), then database.open()
      import json

      class Database:
          """Keeps finished games in a file, so that they can be looked at again."""

          def __init__(self, path="games.json"):
              self.path = path
              self.items = []

          def open(self):
              """Read the file, or begin with an empty list."""
              try:
                  with open(self.path) as file:
                      self.items = json.load(file)
              except FileNotFoundError:
                  self.items = []
              return len(self.items)

          def save(self, title="", score=0):
              """Add one game and write the file."""
              self.items.append({"title": title, "score": score})
              with open(self.path, "w") as file:
                  json.dump(self.items, file)

          def find(self, title):
              return [item for item in self.items if item["title"] == title]

          def best(self):
              """The highest score of all games."""
              return max((item["score"] for item in self.items), default=0)
    ]]></module>
  </user>
  <assistant>I have read the code. What shall I write?</assistant>
</schema>
