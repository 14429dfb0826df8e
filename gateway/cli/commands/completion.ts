import { QUOTA_NAMES } from '#scheduler/quotas/names.ts';
import { type Command, defineCommand } from '../command.ts';
import { EXIT, Failure } from '../failure.ts';

const SHELLS = ['bash', 'zsh', 'fish'] as const;

/** Completion scripts for shells, made from the commands. */
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

/** The script for a shell, or null for an unknown one. */
function scriptFor(shell: string, commands: readonly Command[]): string | null {
  if (shell === 'bash') return bash(commands);
  // zsh can run bash's completions.
  if (shell === 'zsh') return `autoload -U +X bashcompinit && bashcompinit\n${bash(commands)}`;
  return shell === 'fish' ? fish(commands) : null;
}

/** Long flags of a command: its own, `--help`, and `--json` unless the command passes its flags to another program. */
function flags(command: Command): string[] {
  const ownFlags = (command.options ?? []).map((option) => /--[\w-]+/.exec(option.flags)?.[0] ?? '');
  return [...ownFlags, ...(command.passThrough === true ? [] : ['--json']), '--help'].filter((flag) => flag !== '');
}

/** First words of the commands, each once. */
function firstWords(commands: readonly Command[]): string[] {
  return [...new Set(commands.map((command) => command.name.split(' ')[0] ?? ''))];
}

function bash(commands: readonly Command[]): string {
  /** Second words of two-word commands, by first word. */
  const secondWords = new Map<string, string[]>();
  for (const { name } of commands) {
    const [first = '', second] = name.split(' ');
    if (second) secondWords.set(first, [...(secondWords.get(first) ?? []), second]);
  }
  const flagCases = commands.map((command) => `    "${command.name}") words="${flags(command).join(' ')}" ;;`);
  // While a user types the second word of a command, the script's `$name` is the first word and a space.
  const secondWordCases = [...secondWords].map(([first, words]) => `    "${first} ") words="${words.join(' ')}" ;;`);
  const commandsWith = (argument: string) =>
    commands
      .filter((command) => command.arguments?.some(({ name }) => name === argument))
      .map((command) => `"${command.name}"`)
      .join('|');
  // `compgen -W` expands its words as the shell does, so a name from the platform could run a command (`$(…)`).
  // `_pie_plain` leaves out such names.
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

function fish(commands: readonly Command[]): string {
  const lines = ['complete -c pie -f'];
  for (const command of commands) {
    const [first = '', second] = command.name.split(' ');
    const summary = command.summary.replaceAll("'", "\\'");
    lines.push(
      second
        ? `complete -c pie -n '__fish_seen_subcommand_from ${first}' -a ${second} -d '${summary}'`
        : `complete -c pie -n __fish_use_subcommand -a ${first} -d '${summary}'`,
    );
    const condition = `__fish_seen_subcommand_from ${first}${second ? `; and __fish_seen_subcommand_from ${second}` : ''}`;
    for (const flag of flags(command)) lines.push(`complete -c pie -n '${condition}' -l ${flag.slice(2)}`);
    if (command.arguments?.some((argument) => argument.name === 'source')) {
      lines.push(`complete -c pie -n '__fish_seen_subcommand_from ${first}' -F`);
    }
  }
  for (const group of firstWords(commands.filter(({ name }) => name.includes(' '))))
    lines.push(`complete -c pie -n __fish_use_subcommand -a ${group}`);
  return lines.join('\n');
}
