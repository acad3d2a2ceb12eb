<prompt schema="few-shot">
  <oda-marsh/>
  <pavel-dorn/>
  <ines-calder/>
  <stellan/>
  <millbrook/>
  <greta-sund/>
  <gannet-tower/>
  <ask-two-facts/>
  <ask-not-stated-of-a-town/>
  <user>What is the town where Oda Marsh lives known for?</user>
</prompt>
