<prompt schema="citybreak">
  <days days="4 days"/>
  <kyoto/>
  <slow/>
  <user>What are the best sights?</user>
</prompt>
