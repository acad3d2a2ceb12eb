<prompt schema="personalization">
  <high-school/>
  <beginner/>
  <studied-a-month-before/>
  <visual/>
  <essay/>
  <curiosity/>
  <user>Write a learning plan for geometry.</user>
</prompt>
