<prompt schema="documents">
  <tomas-brekk/>
  <merlin-lamp/>
  <user>What is the weather like in Salmora?</user>
</prompt>
