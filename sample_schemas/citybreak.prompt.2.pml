<prompt schema="citybreak">
  <days days="2 days"/>
  <lisbon/>
  <children/>
  <rain/>
  <user>Make a plan.</user>
</prompt>
