"""Holds README.md against the program.

usage: check_readme.py README PLAIT       PLAIT: the built program. Exit status 1 when README says what is not so.

  * a line "$ plait ..." is run, in a folder of its own, and must end with 0, or with what the text says as
    "# exit code N" at the end of the line; "bench" and "doctor" measure for long and have their options looked up only
  * what is shown below it, up to the next command, is what it prints, numbers and spaces aside; "..." stands for text
    left out, and lines with times are not compared
  * every option on such a line stands in the command's --help; one in backquotes elsewhere in that of any command
  * `scripts/...`, `docs/...` and other paths of the repository that are named in backquotes or linked exist
  * lines that run need their model (the one of scripts/fetch_model.sh, a config of the shared data); where it is not
    there, only the options are looked up, which is said
"""
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

LOOKED_UP = {"bench", "doctor"}
MODEL = "SmolLM2-135M-Instruct.Q4_1"


def model_files():
    """What README calls a model -> its file here."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.environ.get("HOME", ""), ".cache")
    shared = os.environ.get("PLAIT_SHARED", "../shared")
    return {MODEL: pathlib.Path(os.environ.get("PLAIT_MODEL") or f"{cache}/plait/models/{MODEL}.gguf").resolve(),
            "Llama-3.1-405B/config.json": pathlib.Path(shared, "data/configs/Llama-3.1-405B.json").resolve()}


def command_lines(text):
    """(line number, command, wanted exit code, lines shown as its output) of "$ plait ..." in fenced blocks; a final
    backslash joins lines."""
    found = []
    fenced = False
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        if line.startswith("```"):
            fenced = not fenced
        elif fenced and re.match(r"\$ (.*\| )?(build/)?plait\b", line):
            command = line[2:]
            while command.endswith("\\"):
                command = command[:-1] + next(lines)[1].strip()
            code = re.search(r"\s+# exit code (\d)$", command)
            found.append((number, command[:code.start()] if code else command, int(code.group(1)) if code else 0, []))
        elif fenced and found and not line.startswith("$"):
            found[-1][3].append(line)
    return found


def plain(text):
    """Numbers with their units become #, any white space one space."""
    text = re.sub(r"\b[0-9a-f]{16}\b|\d[\d.,]*(e[+-]?\d+)?( ?(B|KiB|MiB|GiB)\b)?", "#", text)
    return " ".join(text.split())


def not_printed(shown, printed):
    """Lines, and parts of lines around "...", that were shown and not printed."""
    printed = plain(printed)
    for line in shown:
        if re.search(r"\d s\b|tokens/s", line):
            continue
        for part in line.split("..."):
            if plain(part) not in printed:
                yield part.strip()


def words_of_plait(command):
    words = shlex.split(command)
    while words and not re.fullmatch(r"(build/)?plait", words[0]):
        words.pop(0)
    words = words[1:]
    for i, word in enumerate(words):
        if word in ("|", ">", "2>", "<"):
            return words[:i]
    return words


def options_of(plait, command):
    """Options in the help of a command, of the program where it is empty."""
    words = [plait, command, "--help"] if command else [plait, "--help"]
    text = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
    return set(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", text))


def commands_of(plait):
    text = subprocess.run([plait, "--help"], capture_output=True, text=True, timeout=60, check=True).stdout
    return re.findall(r"^  ([a-z]\w*) ", text.split("Subcommands:")[1], re.MULTILINE)


def option_of(word):
    match = re.match(r"--?[A-Za-z][\w-]*", word)
    return match.group() if match else None


def run(plait, command, models):
    """The line as a shell runs it, "plait" being the built one and a model's name its file."""
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(plait, os.path.join(folder, "plait"))
        env = dict(os.environ, PATH=folder + os.pathsep + os.environ["PATH"])
        line = re.sub(r"(^|\| )build/plait\b", r"\1plait", command)
        for name, file in models.items():
            line = re.sub(r"(?<![\w/.-])" + re.escape(name) + r"(?![\w/.-])", shlex.quote(str(file)), line)
        return subprocess.run(["bash", "-o", "pipefail", "-c", line], cwd=folder, env=env, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=300)


def missing_paths(text, root):
    """Paths of the repository in backquotes or links that are not there."""
    named = re.findall(r"`((?:scripts|docs|examples|tests|bench|plait|cmake)/[\w./-]*)`", text)
    named += [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    for path in sorted(set(named)):
        if not (root / path).exists():
            yield path


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: check_readme.py README PLAIT")
    readme, plait = pathlib.Path(sys.argv[1]), os.path.abspath(sys.argv[2])
    text = readme.read_text(encoding="utf-8")
    models = model_files()
    faults = [f"{readme}: {path} is not there" for path in missing_paths(text, readme.resolve().parent)]
    for script in ("scripts/demo.sh", "scripts/test.sh"):
        if script not in text or not os.access(script, os.X_OK):
            faults.append(f"{readme}: does not name {script}, or that cannot be run")
    known = {command: options_of(plait, command) for command in ["", *commands_of(plait)]}
    for option in map(option_of, re.findall(r"`(-[^`]+)`", text)):
        if not any(option in options for options in known.values()):
            faults.append(f"{readme}: names {option}, which no command has")
    shown = ran = 0
    for number, command, code, output in command_lines(text):
        shown += 1
        words = words_of_plait(command)
        command_name = words[0] if words and not words[0].startswith("-") else ""
        if command_name not in known:
            faults.append(f"{readme}:{number}: no command {command_name}")
            continue
        for option in filter(None, map(option_of, words)):
            if option not in known[command_name]:
                faults.append(f"{readme}:{number}: no option {option} in the help of plait {command_name}")
        needed = [file for name, file in models.items() if name in command]
        if (words and words[0] in LOOKED_UP) or not all(file.exists() for file in needed):
            continue
        done = run(plait, command, models)
        ran += 1
        if done.returncode != code:
            faults.append(f"{readme}:{number}: '{command}' ended with {done.returncode}, want {code}: "
                          f"{done.stderr.strip()[-400:]}")
        faults += [f"{readme}:{number}: '{command}' does not print '{part}'"
                   for part in not_printed(output, done.stdout + done.stderr)]
    if shown == 0:
        faults.append(f"{readme}: shows no command")
    for fault in faults:
        print(fault)
    missing = "".join(f"; {file} is not there" for file in models.values() if not file.exists())
    print(f"check_readme: {shown} commands shown, {ran} run, {len(faults)} faults{missing}")
    sys.exit(1 if faults else 0)


main()
