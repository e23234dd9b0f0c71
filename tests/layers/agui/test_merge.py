"""Which messages a thread consists of when a client's list meets the stored one."""

from agui_lambda.threads.merge import merge
from tests.agent_server import assistant, user

STORED = [user("q1", "1"), assistant("a1", "2"), user("q2", "3"), assistant("a2", "4")]


def ids(stored: list, sent: list) -> list[str]:
    kept, new = merge(stored, sent)
    return [message["id"] for message in [*stored[:kept], *new]]


def test_a_new_thread_is_what_the_client_sends():
    assert ids([], STORED) == ["1", "2", "3", "4"]


def test_whole_history_and_a_new_message_store_only_the_new_one():
    assert merge(STORED, [*STORED, user("q3", "5")]) == (4, [user("q3", "5")])


def test_only_the_new_message_is_appended():
    assert ids(STORED, [user("q3", "5")]) == ["1", "2", "3", "4", "5"]


def test_a_trimmed_tail_is_joined_by_its_ids():
    assert ids(STORED, [*STORED[2:], user("q3", "5")]) == ["1", "2", "3", "4", "5"]


def test_nothing_sent_goes_on_from_the_store():
    assert ids(STORED, []) == ["1", "2", "3", "4"]


def test_a_history_cut_back_to_a_question_drops_the_answer():
    assert ids(STORED, STORED[:3]) == ["1", "2", "3"]


def test_a_known_question_alone_asks_for_a_new_answer_to_it():
    assert ids(STORED, [STORED[2]]) == ["1", "2", "3"]


def test_an_edited_question_drops_what_came_after_it():
    edited = user("another q2", "3")
    assert merge(STORED, [*STORED[:2], edited]) == (2, [edited])


def test_a_message_left_out_of_the_whole_history_is_gone():
    assert ids(STORED, [STORED[0], *STORED[2:]]) == ["1", "3", "4"]


def test_instructions_do_not_make_a_history_another_one():
    system = {"id": "s", "role": "system", "content": "be nice"}
    assert ids(STORED, [system, *STORED, user("q3", "5")]) == ["s", "1", "2", "3", "4", "5"]


def test_a_client_that_keeps_less_of_a_message_sends_no_other_message():
    stored = [user("q", "1"), {"id": "2", "role": "assistant", "toolCalls": [], "metadata": {"x": 1}}]
    sent = [user("q", "1"), {"id": "2", "role": "assistant", "content": "", "name": "bot"}]
    assert merge(stored, sent) == (2, [])


def test_an_id_that_repeats_counts_once():
    sent = [user("a", "1"), user("b", "2"), user("a again", "1")]
    assert merge([], sent) == (0, sent[:2])


def test_in_client_mode_every_list_is_the_whole_conversation():
    assert merge(STORED, [user("q3", "5")], "client") == (0, [user("q3", "5")])
    assert merge(STORED, [], "client") == (0, [])
    assert merge(STORED, [*STORED, user("q3", "5")], "client") == (4, [user("q3", "5")])


def test_in_server_mode_a_list_can_only_add():
    edited = user("another q1", "1")
    assert merge(STORED, [edited, user("q3", "5")], "server") == (4, [user("q3", "5")])
    assert merge(STORED, STORED[:1], "server") == (4, [])
