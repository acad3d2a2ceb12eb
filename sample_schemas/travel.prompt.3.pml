<prompt schema="travel">
  <trip-plan duration="2 days">
    <domestic city="Bruges"/>
  </trip-plan>
  <user>What should I eat?</user>
</prompt>
