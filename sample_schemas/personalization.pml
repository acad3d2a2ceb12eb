<?xml version="1.0" encoding="UTF-8"?>
<!-- A learner with six traits, one union each (appendix A.1.3 of the Prompt Cache paper). -->
<schema name="personalization">
  <system>
    You are a patient tutor. Your plans have one line for each trait.
    Read the profile of the learner, follow what it says, and do not add what it does not say.
  </system>
  <user>
    Here is the profile of the learner.
    1. Grade level:
    <union>
      <module name="elementary">
        The learner is in elementary school.
        At this stage the world is still mostly things that can be touched, counted and carried home in a pocket.
        Attention comes in short bursts, and a lesson that lasts longer than a song is a long lesson.
        Lessons should use short stories.
        Praise works better than correction, and a mistake is best met with another try.
      </module>
      <module name="middle-school">
        The learner is in middle school.
        As the rooms change with every hour, so do the friends, the voices and the opinions.
        Ideas may now be compared, turned around and doubted, though an example is still worth ten rules.
        It is best to discuss simple examples.
        Group work is welcome as long as everybody has a task of their own.
      </module>
      <module name="high-school">
        The learner is in high school.
        Exams draw near, and with them the question of what comes afterwards.
        Abstract ideas are no longer a game but a tool, and proofs begin to please for their own sake.
        The plan should include worked problems.
        Leave room for sleep, sport and a bad day now and then.
      </module>
      <module name="college">
        The learner is in college.
        Nobody checks the homework any more, and the library closes later than most people stay awake.
        Sources must be read, weighed and quoted, and two of them will disagree.
        A good teacher will give long readings.
        Office hours are the most useful hour of the week, and the least visited.
      </module>
      <module name="graduate-school">
        The learner is in graduate school.
        The known has become a small island, and work means standing on its shore.
        A question may take a year, and the answer may be that the question was wrong.
        So write honest summaries.
        Peers are the first readers, and their doubts are a gift.
      </module>
      <module name="adult-education">
        The learner is in adult education.
        There is a job in the morning, a family in the evening, and an hour in between that nobody else may have.
        Experience fills many gaps, and old habits open others.
        The plan should use real problems.
        What was learned on Tuesday should be of use on Wednesday.
      </module>
    </union>
    2. Proficiency:
    <union>
      <module name="beginner">
        The learner is a beginner.
        Words that others use without thinking still have to be unpacked one by one.
        The first success matters more than the first test.
        Lessons should start with simple games.
        Go slowly, name every step, and repeat it on the next day in other words.
      </module>
      <module name="intermediate">
        The learner is an intermediate learner.
        The rules are known, and now the exceptions arrive.
        Progress feels slower than it is, which is the moment when many give up.
        It is best to solve hard puzzles.
        Show how far they have come as often as how far there is to go.
      </module>
      <module name="advanced">
        The learner is an advanced learner.
        The usual problems are solved before the question has been read to the end.
        What is missing is not knowledge but order, speed and taste.
        The plan should compare formal proofs.
        Let them explain to others, for nothing else shows so clearly what is not yet understood.
      </module>
      <module name="expert">
        The learner is an expert.
        There is little to tell such a person, and much to ask.
        Only the edge of the subject is still of interest, where the books contradict each other.
        A good teacher will set open questions.
        Stay out of the way, and be ready to be corrected.
      </module>
    </union>
    3. Learning history:
    <union>
      <module name="recently-studied">
        The learner studied the topic recently.
        The notes are still on the desk, and half of the words are still warm.
        There is no need to begin at the beginning.
        So skip old definitions.
        A few questions at the start will show which corners were cut.
      </module>
      <module name="studied-a-month-before">
        The learner studied the topic a month ago.
        Names have stayed, details have gone, and the order of things is a little shaken.
        One evening is enough to bring most of it back.
        The plan should review short notes.
        After that, go on as if there had been no pause.
      </module>
      <module name="studied-6-months-before">
        The learner studied the topic half a year ago.
        Half a year is ample time to forget a method and to keep the feeling of having known it.
        That feeling is a poor guide, so test it kindly.
        Lessons should repeat small quizzes.
        Whatever fails twice is to be learned again from the ground.
      </module>
      <module name="studied-a-year-before">
        The learner studied the topic a year ago.
        What is left after a year is what was truly understood, and it is usually less than one hopes.
        The old exercises will look familiar and strange at once.
        It is best to return to old problems.
        The second time is quicker than the first, and it lasts longer.
      </module>
      <module name="studied-10-years-before">
        The learner studied the topic ten years ago.
        A decade is a substantial gap, and the subject has moved as well.
        Some of what was taught then is no longer taught at all.
        A good teacher will begin with new definitions.
        Treat memories with respect, and check them against a recent book.
      </module>
      <module name="never-studied">
        The learner never studied the topic.
        This is new ground, and every word on it is new.
        Curiosity is high and confidence is low, and both change within the first hour.
        The plan should start with early pauses.
        Ask for questions before giving answers.
      </module>
    </union>
    4. Learning style:
    <union>
      <module name="visual">
        The learner is a visual learner.
        A page is remembered by its look: the figure at the top left, the red line at the bottom.
        What cannot be seen is soon lost.
        Lessons should draw coloured diagrams.
        Leave the board as it is at the end of the hour, and let everyone take a photograph of it.
      </module>
      <module name="auditory">
        The learner is an auditory learner.
        Things said aloud stay, and things read in silence fade.
        A rhyme, a rhythm or a heated talk will do more than a chart.
        It is best to record spoken summaries.
        Let them repeat the rule in their own voice.
      </module>
      <module name="kinesthetic">
        The learner is a kinesthetic learner.
        Hands first, words afterwards: what has been built or walked is understood.
        Sitting still is the hardest exercise of all.
        The plan should build small models.
        A lesson may well take place in the yard.
      </module>
      <module name="reading">
        The learner is a reading learner.
        Give this person a text and a pencil, and close the door softly.
        Margins fill up, lists grow, and in the end the whole book exists a second time in their own words.
        A good teacher will collect printed notes.
        Talk is welcome, but only after the chapter is finished.
      </module>
      <module name="multimodal">
        The learner is a multimodal learner.
        One day a picture helps, and the next day a debate, and no one can tell which it will be.
        The same idea should therefore come along in several coats.
        So add videos and paired talks.
        Change the form before attention drops, not after.
      </module>
    </union>
    5. Preferred assessment:
    <union>
      <module name="multiple-choice">
        The learner prefers multiple choice tests.
        The clear task, the quick result and the small cross at the right place give a feeling of safety.
        Good wrong answers teach as much as the right one.
        The plan should end with timed quizzes.
        Ask now and then why the other three are false.
      </module>
      <module name="essay">
        The learner prefers essays.
        An argument needs room, and thoughts become clear while they are being written down.
        Style is no ornament here but a proof of understanding.
        Lessons should write long essays.
        Return them with questions in the margin rather than with a number.
      </module>
      <module name="oral">
        The learner prefers oral exams.
        In conversation a slip can be mended at once, and a good question can be answered with a better one.
        Nerves are part of it, and they become fewer with practice.
        It is best to plan guided talks.
        Begin with something easy, and let the talk wander.
      </module>
      <module name="project">
        The learner prefers projects.
        Weeks of work on one thing, with a result that can be shown to others, are worth more than a mark.
        Time is the danger: the last tenth takes as long as the rest.
        A good teacher will set weekly goals.
        Look at drafts early, when a change is still cheap.
      </module>
    </union>
    6. Motivation:
    <union>
      <module name="curiosity">
        The learner is driven by curiosity.
        There is no purpose beyond the thing itself, and none is needed.
        Side roads are taken with pleasure, and the way back is found late.
        The plan should allow open experiments.
        A good riddle at the end of the hour brings everybody back for the next.
      </module>
      <module name="career">
        The learner is driven by a career.
        Every chapter is asked what it is good for, and it had better have an answer.
        Certificates count, and so does what one can do on a Monday morning.
        So work through real case studies.
        Invite somebody from the trade who will tell how it really is.
      </module>
      <module name="exam">
        The learner is driven by an exam.
        There is a date, there is a list, and there is little patience for anything else.
        Order calms, and old papers calm even more.
        Lessons should solve timed problems.
        Count backwards from the day, and keep the last two evenings free.
      </module>
      <module name="hobby">
        The learner is driven by a hobby.
        It is done for joy, on rainy Sundays, with cake.
        Nothing kills it faster than a timetable.
        It is best to offer playful projects.
        Share what was made, and leave the rest to the weather.
      </module>
    </union>
  </user>
  <assistant>I have read the profile. What shall we learn?</assistant>
</schema>
