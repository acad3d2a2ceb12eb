<prompt schema="travel">
  <trip-plan duration="2 days">
    <overseas>
      <rome/>
    </overseas>
  </trip-plan>
  <generous-budget/>
  <in-april/>
  <with-children/>
  <loves-viewpoints/>
  <user>Make a plan.</user>
</prompt>
