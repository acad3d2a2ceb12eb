<prompt schema="travel">
  <trip-plan duration="3 days">
    <overseas>
      <rome/>
    </overseas>
  </trip-plan>
  <generous-budget/>
  <in-april/>
  <user>Make a plan that highlights the viewpoints.</user>
</prompt>
