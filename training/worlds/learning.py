"""Learners with up to six traits, one module each, and the learning plan that follows from them."""

from __future__ import annotations

import random

from training.worlds.example import Example, Turn, mixed, paragraph
from training.worlds.words import filler, invented

# trait → (headings, what may be said of a learner)
TRAITS: dict[str, tuple[str, str]] = {
    "grade": (
        "Grade level|School grade|Stage of education",
        "is in elementary school|is in middle school|is in high school|is in college|is in graduate school|is in adult education|"
        "goes to kindergarten|goes to a night school|is a trainee|is in the first year|is in the last year|studies at a university",
    ),
    "proficiency": (
        "Subject proficiency|Proficiency|Skill in the subject",
        "is a beginner|is an intermediate learner|is an advanced learner|is an expert|is a complete novice|knows the basics|is fluent|"
        "is out of practice|is above the average|is below the average",
    ),
    "history": (
        "Recent learning history|Learning history|When the topic was last studied",
        "studied the topic recently|studied the topic a month ago|studied the topic half a year ago|studied the topic a year ago|"
        "studied the topic ten years ago|never studied the topic|studied the topic last week|studied the topic twice|left the topic unfinished",
    ),
    "style": (
        "Learning style|Way of learning|How the learner learns",
        "is a visual learner|is an auditory learner|is a kinesthetic learner|is a reading learner|is a multimodal learner|"
        "learns by talking|learns by drawing|learns alone|learns in groups|learns by building things",
    ),
    "assessment": (
        "Preferred assessment|Assessment type|Form of assessment",
        "prefers multiple choice tests|prefers essays|prefers oral exams|prefers projects|prefers short quizzes|prefers open books|"
        "prefers group work|prefers portfolios|prefers no exams",
    ),
    "motivation": (
        "Motivation|Reason for learning|What drives the learner",
        "is driven by curiosity|is driven by a career|is driven by an exam|is driven by a hobby|is driven by a contest|is driven by friends|"
        "is driven by praise|is driven by a degree|is driven by a move abroad",
    ),
}
VERBS = (
    "use|start with|add|give|plan|set|offer|show|read|repeat|skip|discuss|draw|build|collect|review|compare|solve|write|record|include|begin with|"
    "end with|allow|rely on|return to|work through|stay with"
).split("|")
MANNERS = (
    "short|long|simple|hard|worked|coloured|weekly|daily|open|closed|printed|spoken|written|quiet|lively|real|small|large|early|late|old|new|"
    "careful|playful|formal|honest|graded|timed|paired|guided"
).split("|")
MEANS = (
    "examples|diagrams|stories|proofs|games|lectures|debates|experiments|summaries|quizzes|drills|essays|models|charts|videos|songs|maps|goals|"
    "projects|readings|problems|pauses|walks|interviews|notes|cards|puzzles|exams|rewards|talks|checklists|questions|definitions|case studies"
).split("|")
TAILS = "|||||every week|each day|at first|in pairs|at home|with a friend|before each lesson|after each lesson|in small steps|on paper|out loud".split("|")
ADVICE_FRAMES = (
    "Lessons should {v}.|It is best to {v}.|The plan should {v}.|A good teacher will {v}.|For such a learner, {v}.|So {v}.|That is why the plan should {v}."
).split("|")
STATEMENTS = "The learner {p}.|Here the learner {p}.|In this case the learner {p}.".split("|")
SUBJECTS = "fractions|geometry|chemistry|grammar|history|music|biology|algebra|physics|drawing|economics|statistics|poetry|astronomy|programming|French|logic|geography|calculus".split("|")
SYSTEM = (
    "You are a tutor who writes learning plans.|You tailor lessons to a learner. Follow the traits.|You are a patient tutor. Your plans have one line for "
    "each trait.|Dialogues between a tutor and a learner.|You write short learning plans from the profile of a learner."
).split("|")
LEADS = "Tailor the lessons to this learner.|Here is the profile of the learner.|The learner is described below.|Adapt to these traits.".split("|")
ACKNOWLEDGEMENTS = "I have read the profile. What shall we learn?|I know the learner now.|I am ready to write a plan.".split("|")
QUESTIONS = (
    "Write a learning plan for {s}.|Make a plan for {s}.|How should we learn {s}?|Plan the lessons in {s}.|Give me a learning plan for {s}."
).split("|")
SINGLE = (
    "What about the {t}?|What follows from the {t}?|Which advice follows from the {t}?|Tell me about the {t}."
).split("|")


def advice(r: random.Random) -> str:
    """What a lesson should do: `use short proofs every week`."""
    manner, means = r.choice(MANNERS), r.choice(MEANS)
    kind = r.randrange(4)
    thing = means if kind == 0 else f"{manner} {means}" if kind < 3 else f"{means} and {r.choice(MANNERS)} {r.choice(MEANS)}"
    return f"{r.choice(VERBS)} {thing} {r.choice(TAILS)}".strip()


def learning(r: random.Random, size: int, turns: int) -> Example:
    """A learner with some traits, and `turns` questions; `size` 0..3 says how many traits and how much prose."""
    example = Example("learning")
    count = (r.randint(1, 2), r.randint(2, 4), r.randint(3, 6), r.choice([4, 5, 6, 6, 6]))[size]
    chosen = r.sample(list(TRAITS), count)
    keys = [k for k in TRAITS if k in chosen]
    if size or r.random() < 0.3:
        example.role("system")
        example.anonymous(r.choice(SYSTEM))
        example.close()
    example.role("user")
    lead = r.choice(LEADS)
    lines: dict[str, tuple[str, str]] = {}
    most = (0, 1, 4, 7)[size]
    for number, key in enumerate(keys, 1):
        heading = r.choice(TRAITS[key][0].split("|"))
        predicate, counsel = r.choice(TRAITS[key][1].split("|")), advice(r)
        text = (f"{lead} " if number == 1 else " ") + f"{number}. {heading}" + r.choice([" ", ": ", ". "])
        example.anonymous(text)
        facts = [r.choice(STATEMENTS).format(p=predicate), r.choice(ADVICE_FRAMES).format(v=counsel)]
        example.module(paragraph(r, mixed(r, facts, lambda: filler(r), r.randint(most // 2, most))), f"{key}")
        lines[heading] = (predicate, counsel)
    if r.random() < 0.3:
        example.open_user = True
    else:
        example.close()
        if r.random() < 0.7:
            example.role("assistant")
            example.anonymous(r.choice(ACKNOWLEDGEMENTS))
            example.close()
    for _ in range(turns):
        if r.random() < (0.5 if size < 2 else 0.7):
            subject = r.choice(SUBJECTS) if r.random() < 0.7 else invented(r)
            answer = "\n".join([f"Learning plan for {subject}.", *(f"The learner {p}: {v}." for p, v in lines.values())])
            example.turns.append(Turn(r.choice(QUESTIONS).format(s=subject), answer, "plan"))
        else:
            heading = r.choice(list(lines))
            p, v = lines[heading]
            example.turns.append(Turn(r.choice(SINGLE).format(t=heading[0].lower() + heading[1:]), f"The learner {p}: {v}.", "trait"))
    return example
