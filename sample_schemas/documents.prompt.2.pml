<prompt schema="documents">
  <lena-varga/>
  <torlin/>
  <dune-mills/>
  <user>Who is the mayor of Torlin?</user>
</prompt>
