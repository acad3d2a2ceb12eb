<prompt schema="documents">
  <lena-varga/>
  <tomas-brekk/>
  <torlin/>
  <salmora/>
  <ridgeway/>
  <dune-mills/>
  <harlow-bridge/>
  <merlin-lamp/>
  <user>Where does Lena Varga live?</user>
</prompt>
