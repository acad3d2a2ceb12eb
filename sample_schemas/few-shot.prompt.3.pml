<prompt schema="few-shot">
  <oda-marsh/>
  <pavel-dorn/>
  <ines-calder/>
  <stellan/>
  <millbrook/>
  <greta-sund/>
  <gannet-tower/>
  <ask-people/>
  <ask-not-stated/>
  <user>Who is a close friend of Oda Marsh?</user>
</prompt>
