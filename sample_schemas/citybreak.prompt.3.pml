<prompt schema="citybreak">
  <days/>
  <oslo/>
  <train/>
  <user>What are the best markets?</user>
</prompt>
