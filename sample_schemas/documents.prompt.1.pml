<prompt schema="documents">
  <lena-varga/>
  <tomas-brekk/>
  <torlin/>
  <salmora/>
  <ridgeway/>
  <dune-mills/>
  <harlow-bridge/>
  <merlin-lamp/>
  <user>Who designed the Harlow Bridge?</user>
</prompt>
