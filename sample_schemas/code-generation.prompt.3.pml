<prompt schema="code-generation">
  <unit.py/>
  <player.py/>
  <user>In which file is Player?</user>
</prompt>
