<prompt schema="code-generation">
  <unit.py/>
  <map.py/>
  <player.py/>
  <game.py/>
  <database.py/>
  <user>Write a main that uses Unit and Map.</user>
</prompt>
