<prompt schema="documents">
  <tomas-brekk/>
  <merlin-lamp/>
  <user>How much is the Merlin lamp?</user>
</prompt>
