import { QUOTA_NAMES } from '#scheduler/quotas/names.ts';
import { type Command, defineCommand } from '../command.ts';
import { EXIT, Failure } from '../failure.ts';

const SHELLS = ['bash', 'zsh', 'fish'] as const;

/** The command `pie completion`. It prints a shell's completion script, which it makes from the declarations of all commands. */
export function completion(loadCommands: () => Promise<readonly Command[]>): Command {
  return defineCommand({
    name: 'completion',
    summary: 'Print a completion script for a shell',
    arguments: [{ name: 'shell', help: SHELLS.join(', '), required: true }],
    examples: [
      {
        line: 'source <(pie completion bash)',
        does: 'enables completion in this shell; put the line into ~/.bashrc to keep it',
      },
      {
        line: 'pie completion fish > ~/.config/fish/completions/pie.fish',
        does: 'enables completion in fish permanently',
      },
    ],
    async run({ args: [shell], terminal }) {
      const script = scriptFor(shell, await loadCommands());
      if (script === null)
        throw new Failure(`Pie has no completion for "${shell}".`, { advice: `Name one of ${SHELLS.join(', ')}.` });
      terminal.print(script);
      terminal.value({ shell, script });
      return EXIT.ok;
    },
  });
}

/** The completion script for a shell; null when Pie has none for this shell. */
function scriptFor(shell: string, commands: readonly Command[]): string | null {
  if (shell === 'bash') return bash(commands);
  // After `bashcompinit`, zsh has bash's completion commands `complete` and `compgen`.
  if (shell === 'zsh') return `autoload -U +X bashcompinit && bashcompinit\n${bash(commands)}`;
  return shell === 'fish' ? fish(commands) : null;
}

/** Long flags that a command accepts. Every command has `--help`. A command that passes its words to another program has no `--json`. */
function longFlags(command: Command): string[] {
  const declaredFlags = (command.options ?? []).map((option) => /--[\w-]+/.exec(option.flags)?.[0] ?? '');
  const jsonFlag = command.passThrough === true ? [] : ['--json'];
  return [...declaredFlags, ...jsonFlag, '--help'].filter((flag) => flag !== '');
}

/** The distinct first words of the commands' names. */
function firstWords(commands: readonly Command[]): string[] {
  return [...new Set(commands.map((command) => command.name.split(' ')[0] ?? ''))];
}

/** The script for bash. It defines a function `_pie`, which bash calls to complete the word under the cursor. */
function bash(commands: readonly Command[]): string {
  /** For each first word of two-word commands, the second words that may follow. */
  const secondWords = new Map<string, string[]>();
  for (const { name } of commands) {
    const [first = '', second] = name.split(' ');
    if (second) secondWords.set(first, [...(secondWords.get(first) ?? []), second]);
  }
  const flagCases = commands.map((command) => `    "${command.name}") words="${longFlags(command).join(' ')}" ;;`);
  // While the user types the second word of a command, the script sets `$name` to the first word and a space. The space tells these cases from those
  // of one-word commands.
  const secondWordCases = [...secondWords].map(([first, words]) => `    "${first} ") words="${words.join(' ')}" ;;`);
  /** A `case` pattern that matches the commands that take this argument. */
  const commandsWith = (argument: string) =>
    commands
      .filter((command) => command.arguments?.some(({ name }) => name === argument))
      .map((command) => `"${command.name}"`)
      .join('|');
  // Each list of names comes from a command's JSON: `grep` finds a name by the field that follows the name.
  // `compgen -W` expands its words as the shell does, so a name such as `$(reboot)` would run a command. `_pie_plain` drops names with special
  // characters.
  return `_pie_plain() { grep -x '[A-Za-z0-9@._-]*'; }
_pie_functions() { pie list --json 2>/dev/null | grep -o '"name":"[^"]*","version"' | cut -d'"' -f4 | _pie_plain; }
_pie_tenants() { pie tenants list --json 2>/dev/null | grep -o '"name":"[^"]*","createdAt"' | cut -d'"' -f4 | _pie_plain; }
_pie_hosts() { pie gpu-hosts --json 2>/dev/null | grep -o '"name":"[^"]*","connected"' | cut -d'"' -f4 | _pie_plain; }
_pie() {
  local current="\${COMP_WORDS[COMP_CWORD]}" words="" name="\${COMP_WORDS[1]}"
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "${firstWords(commands).join(' ')} --help --version" -- "$current"))
    return
  fi
  case "$name" in ${[...secondWords.keys()].join('|')})
    if [ "$COMP_CWORD" -eq 2 ]; then name="$name "; else name="$name \${COMP_WORDS[2]}"; fi ;;
  esac
  case "$name" in
${[...secondWordCases, ...flagCases].join('\n')}
  esac
  case "\${COMP_WORDS[COMP_CWORD-1]}" in
    --function) words="$(_pie_functions)" ;;
    --tenant) words="$(_pie_tenants)" ;;
    *) if [[ "$current" != -* ]]; then
      case "$name" in
        ${commandsWith('function')}) words="$(_pie_functions)" ;;
        ${commandsWith('tenant')}) words="$(_pie_tenants)" ;;
        ${commandsWith('host')}) words="$(_pie_hosts)" ;;
        ${commandsWith('quota')}) words="${QUOTA_NAMES.join(' ')}" ;;
        ${commandsWith('source')}) COMPREPLY=($(compgen -f -- "$current")); return ;;
      esac
    fi ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o filenames -F _pie pie`;
}

/** The script for fish: one `complete` line for each command, each flag, and each first word of two-word commands. */
function fish(commands: readonly Command[]): string {
  const lines = ['complete -c pie -f'];
  for (const command of commands) {
    const [first = '', second] = command.name.split(' ');
    const summary = command.summary.replaceAll("'", "\\'");
    const afterFirst = `__fish_seen_subcommand_from ${first}`;
    let afterCommand = afterFirst;
    if (second) {
      lines.push(`complete -c pie -n '${afterFirst}' -a ${second} -d '${summary}'`);
      afterCommand = `${afterFirst}; and __fish_seen_subcommand_from ${second}`;
    } else {
      lines.push(`complete -c pie -n __fish_use_subcommand -a ${first} -d '${summary}'`);
    }
    for (const flag of longFlags(command)) {
      const flagName = flag.slice('--'.length);
      lines.push(`complete -c pie -n '${afterCommand}' -l ${flagName}`);
    }
    // The argument `source` is a path: let fish complete files.
    const takesPath = command.arguments?.some(({ name }) => name === 'source');
    if (takesPath) lines.push(`complete -c pie -n '${afterFirst}' -F`);
  }
  const twoWordCommands = commands.filter(({ name }) => name.includes(' '));
  for (const group of firstWords(twoWordCommands)) lines.push(`complete -c pie -n __fish_use_subcommand -a ${group}`);
  return lines.join('\n');
}
