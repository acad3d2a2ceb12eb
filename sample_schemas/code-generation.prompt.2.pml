<prompt schema="code-generation">
  <player.py/>
  <game.py/>
  <database.py/>
  <user>Write a main that uses Game and Database.</user>
</prompt>
