<prompt schema="travel">
  <trip-plan duration="3 days">
    <overseas>
      <tokyo/>
    </overseas>
  </trip-plan>
  <user>Highlight the surf spots.</user>
</prompt>
