import { Command as Commander, CommanderError, Option as CommanderOption, InvalidArgumentError } from 'commander';
import type { Call, Command, Option } from './command.ts';
import { Failure } from './failure.ts';

interface Parsed {
  readonly command: Command;
  readonly args: Call['args'];
  readonly options: Call['options'];
  /** True for the option `--json`, which every command has unless it passes its flags to another program. */
  readonly json: boolean;
}

/** Groups of two-word commands: `models pull` is in `models`. */
const GROUPS: Readonly<Record<string, string>> = {
  models: 'Models on this machine',
  files: 'Files of an invocation',
  alias: 'Names of function versions',
  quota: 'Limits and their use',
  quarantine: 'Versions that crash their sandboxes',
  schedule: 'Functions invoked at set times',
  secrets: 'Secrets that functions use',
  webhooks: 'Notifications when invocations end',
  keys: 'API keys of a tenant',
  tenants: 'Tenants of the platform',
  machines: 'Machines of the platform',
  'gpu-hosts': 'GPU hosts of the platform',
};

const FOOTER = `
Exit codes: 0 ok, 1 wrong usage, 2 refused, 3 the invocation failed, 4 the platform cannot be reached, 5 doctor found something,
6 an upgrade is under way, 70 a fault of the command itself, 130 interrupted. Environment: PIE_URL and PIE_API_KEY (else credentials.json of
PIE_HOME: .pie in the clone, ~/.pie of an installed Pie).`;

/**
 * Parses the command line. Returns null after it has shown help or the version. Throws {@link Failure} for
 * wrong usage.
 */
export function parse(commands: readonly Command[], version: string, argv: readonly string[]): Parsed | null {
  let parsed: Parsed | null = null;
  let errorOutput = '';
  const root = configure(new Commander('pie'))
    .description('Functions that drive LLM inference themselves: deploy them, talk to them.')
    .version(version, '-V, --version', 'show the version')
    .addHelpText('after', FOOTER);
  const groups = new Map<string, Commander>();
  for (const command of commands) {
    const words = command.name.split(' ');
    const parent = words.length === 1 ? root : groupOf(words[0] ?? '');
    const subcommand = configure(parent.command(words.at(-1) ?? '', { isDefault: command.byDefault === true }))
      .summary(command.summary)
      .description(command.description ?? `${command.summary}.`);
    for (const argument of command.arguments ?? []) {
      const name = `${argument.name}${argument.rest === true ? '...' : ''}`;
      subcommand.argument(argument.required ? `<${name}>` : `[${name}]`, argument.help);
    }
    for (const option of command.options ?? []) {
      const commanderOption = optionOf(option);
      const name = commanderOption.attributeName();
      subcommand.addOption(commanderOption);
      // These values are set here because the help would show defaults of the options.
      if (option.repeat === true) subcommand.setOptionValue(name, []);
      else if (commanderOption.isBoolean()) subcommand.setOptionValue(name, false);
    }
    if (command.passThrough === true) subcommand.allowUnknownOption().helpOption(false);
    else subcommand.option('--json', 'print JSON for programs instead of text for people');
    subcommand.addHelpText(
      'after',
      `\nExamples:\n${command.examples.map(({ line, does }) => `  ${line}\n      ${does}`).join('\n')}`,
    );
    subcommand.action(() => {
      const { json, ...options } = subcommand.opts();
      parsed = { command, args: subcommand.args, options, json: json === true };
    });
  }

  function groupOf(name: string): Commander {
    let group = groups.get(name);
    if (!group) {
      group = configure(root.command(name))
        .summary(GROUPS[name] ?? name)
        .description(`${GROUPS[name] ?? name}.`);
      groups.set(name, group);
    }
    return group;
  }

  function configure(command: Commander): Commander {
    return command
      .exitOverride()
      .enablePositionalOptions()
      .showHelpAfterError(false)
      .configureOutput({
        writeErr: (text) => {
          errorOutput += text;
        },
      });
  }

  try {
    root.parse([...argv], { from: 'user' });
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    if (error.exitCode === 0) return null;
    // For a group or `pie` alone, commander writes the help as an error.
    if (error.code === 'commander.help') {
      process.stderr.write(errorOutput);
      throw new Failure('No command was given.', { advice: 'Pick one of the commands above.' });
    }
    if (error.code === 'commander.excessArguments') assertGroupMember(commands, argv);
    throw usageFailure(errorOutput || error.message, commands, argv);
  }
  return parsed;
}

function optionOf(option: Option): CommanderOption {
  const commanderOption = new CommanderOption(option.flags, option.help);
  if (option.choices) commanderOption.choices([...option.choices]);
  if (!commanderOption.required) return commanderOption;
  const choiceParser = commanderOption.parseArg;
  const parseText = (text: string): unknown => {
    if (choiceParser) return choiceParser(text, undefined);
    return option.parse ? parsedValue(option.parse, text) : text;
  };
  return option.repeat === true
    ? commanderOption.argParser((text, earlierValues: readonly unknown[]) => [...earlierValues, parseText(text)])
    : commanderOption.argParser((text, earlierValue: unknown) => {
        if (earlierValue !== undefined) throw new InvalidArgumentError('It was given before: give it once.');
        return parseText(text);
      });
}

function parsedValue(parse: NonNullable<Option['parse']>, value: string): unknown {
  try {
    return parse(value);
  } catch (error) {
    const advice = error instanceof Failure ? error.advice : undefined;
    const words = error instanceof Error ? error.message : String(error);
    throw new InvalidArgumentError(advice === undefined ? words : `${words} ${advice}`);
  }
}

/** The words of the command line that name a command or a group. */
function knownWords(commands: readonly Command[], argv: readonly string[]): string[] {
  const names = commands.map(({ name }) => name.split(' '));
  const [first = '', second = ''] = argv.filter((word) => !word.startsWith('-'));
  if (names.some(([group, word]) => group === first && word === second && second !== '')) return [first, second];
  return names.some(([word]) => word === first) ? [first] : [];
}

/**
 * Refuses an unknown word after a group, which commander takes for a surplus argument of the group's default command. A missing word
 * becomes `-` and, like an option, is not refused.
 */
function assertGroupMember(commands: readonly Command[], [group = '', member = '-']: readonly string[]): void {
  const members = commands.map(({ name }) => name.split(' ')).filter(([first, word]) => first === group && word);
  if (members.length === 0 || member.startsWith('-') || members.some(([, word]) => word === member)) return;
  // Hide the word: it may be a secret.
  throw new Failure(`\`pie ${group}\` has no such command.`, {
    advice: `It has ${members.map(([, word]) => word).join(', ')}. See \`pie ${group} --help\`.`,
  });
}

function usageFailure(complaint: string, commands: readonly Command[], argv: readonly string[]): Failure {
  const [firstLine = '', ...moreLines] = complaint
    .trim()
    .replace(/^error: /, '')
    // Hide surplus arguments: they may be secrets.
    .replace(/( but got \d+): .*/s, '$1.')
    .split('\n');
  const commandWords = knownWords(commands, argv);
  const suggestion = moreLines.join(' ').replace(/^\(|\)$/g, '');
  return new Failure(
    `${firstLine.charAt(0).toUpperCase()}${firstLine.slice(1)}${/[.?!]$/.test(firstLine) ? '' : '.'}`,
    {
      advice: `${suggestion} See \`pie ${[...commandWords, '--help'].join(' ')}\`.`.trim(),
    },
  );
}
