<prompt schema="documents">
  <torlin/>
  <ridgeway/>
  <harlow-bridge/>
  <user>Who designed the Harlow Bridge?</user>
</prompt>
