<prompt schema="travel">
  <trip-plan duration="5 days">
    <overseas>
      <rome/>
    </overseas>
  </trip-plan>
  <user>Make a plan that highlights the viewpoints.</user>
</prompt>
