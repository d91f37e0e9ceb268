"""What a terminal is shown, and what a pipe gets."""

from vtlite.commands.terminal import notice, show, stream


def test_a_terminal_is_never_sent_control_characters_and_a_pipe_gets_them_as_they_are(monkeypatch, capsys):
    text = "a\x1b]0;title\x07b\tc\nd\x9be\r"
    show(text)
    assert capsys.readouterr().out == text
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    show(text)
    assert capsys.readouterr().out == "a\ufffd]0;title\ufffdb\tc\nd\ufffde\ufffd"


def test_a_stream_is_its_pieces_and_nothing_else(capsys):
    stream(iter(["", "Once", " upon"]))
    stream(iter([]))
    assert capsys.readouterr() == ("Once upon", "")


def test_a_notice_is_one_line_on_standard_error_however_long(capsys):
    notice("word " * 100)
    assert capsys.readouterr() == ("", "word " * 100 + "\n")
