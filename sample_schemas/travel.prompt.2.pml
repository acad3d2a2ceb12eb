<prompt schema="travel">
  <trip-plan duration="3 days">
    <overseas>
      <rome/>
    </overseas>
  </trip-plan>
  <small-budget/>
  <with-children/>
  <loves-viewpoints/>
  <user>Make a plan.</user>
</prompt>
