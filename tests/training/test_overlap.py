"""What evaluation and training share: counted, not claimed."""

from __future__ import annotations

from sample_schemas import samples
from training.overlap import drawn_sentences, held_out_names, names, sample_sentences, sentences


def test_sentences_are_cut_at_their_ends_and_at_lines() -> None:
    assert sentences("One is here. Two\n is  there!\nNo. The  third one?") == {
        "One is here.",
        "The third one?",
    }


def test_samples_share_sentences_with_training_and_most_are_their_own() -> None:
    """The samples were said not to be in the corpus; some of their sentences are."""
    drawn = drawn_sentences(300)
    assert drawn == drawn_sentences(300)
    texts = sample_sentences()
    assert set(texts) == {one.name for one in samples()}
    shared = {name: found & drawn for name, found in texts.items()}
    assert "Make a plan." in shared["travel"]
    assert all(len(shared[name]) < len(found) / 2 for name, found in texts.items())


def test_a_held_out_name_is_no_word_that_training_knows() -> None:
    """Prose and documents hold such names; what a learning plan is asked for mostly does not."""
    known = {word for sentence in drawn_sentences(300) for word in sentence.lower().strip(".").split()}
    found = names(known)
    assert found["documents"]["with_a_held_out_name"] == found["documents"]["prompts"] == 160
    assert found["documents"]["asked_or_answered_with_one"] > 140
    assert 0 < found["learning"]["asked_or_answered_with_one"] < 20
    assert held_out_names("Namdrand met Lessons.", set()) >= {"Namdrand"}
    assert held_out_names("Namdrand", {"namdrand"}) == set()
