<prompt schema="personalization">
  <adult-education/>
  <intermediate/>
  <studied-10-years-before/>
  <auditory/>
  <project/>
  <career/>
  <user>Write a learning plan for statistics.</user>
</prompt>
