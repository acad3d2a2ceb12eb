<prompt schema="documents">
  <lena-varga/>
  <torlin/>
  <dune-mills/>
  <user>Who is the mayor of the home town of Lena Varga?</user>
</prompt>
