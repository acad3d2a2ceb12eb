<prompt schema="personalization">
  <elementary/>
  <never-studied/>
  <kinesthetic/>
  <user>What about the learning style?</user>
</prompt>
