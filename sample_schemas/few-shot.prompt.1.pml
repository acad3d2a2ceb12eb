<prompt schema="few-shot">
  <oda-marsh/>
  <pavel-dorn/>
  <ines-calder/>
  <stellan/>
  <millbrook/>
  <greta-sund/>
  <gannet-tower/>
  <ask-job/>
  <ask-birth/>
  <ask-river/>
  <ask-not-stated/>
  <user>Which instrument does Ines Calder play?</user>
</prompt>
