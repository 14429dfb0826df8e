import type { PieClient } from '../client/client.ts';
import type { Credentials } from './credentials.ts';
import type { Terminal } from './terminal.ts';

export interface Argument {
  readonly name: string;
  readonly help: string;
  readonly required: boolean;
  /** Takes all following words. */
  readonly rest?: boolean;
}

export interface Option {
  /** As written, with one long flag: `--name <name>`, `-f, --follow`, `--no-start`. */
  readonly flags: string;
  readonly help: string;
  readonly choices?: readonly string[];
  /** Allows repetition; the values come as a list. */
  readonly repeat?: boolean;
  /** Turns the text into a value; throws {@link Failure} for an invalid one. */
  readonly parse?: (text: string) => unknown;
}

interface Example {
  readonly line: string;
  readonly does: string;
}

/** Context of a command's handler, typed by the declarations of its options and arguments. */
export interface Call<
  Options extends readonly Option[] = readonly Option[],
  Arguments extends readonly Argument[] = readonly Argument[],
> {
  readonly args: ArgumentValues<Arguments>;
  readonly options: OptionValues<Options>;
  readonly terminal: Terminal;
  /** Aborts at Ctrl-C, at SIGTERM, and when the output cannot be written any more. */
  readonly signal: AbortSignal;
  /** The platform's client. Throws {@link Failure} when no credentials are found or the address does not answer. */
  connect(): Promise<{ client: PieClient; credentials: Credentials }>;
}

/** A command as data: the parser, the help and the shell completions are made from it. */
export interface Command<
  Options extends readonly Option[] = readonly Option[],
  Arguments extends readonly Argument[] = readonly Argument[],
> {
  /** One or two words: `deploy`, `models pull`. */
  readonly name: string;
  readonly summary: string;
  readonly description?: string;
  readonly arguments?: Arguments;
  readonly options?: Options;
  readonly examples: readonly Example[];
  /** The command that its group runs by default: `pie quota` is `pie quota list`. */
  readonly byDefault?: true;
  /** Passes all words after the name to another program, flags included. */
  readonly passThrough?: boolean;
  /** Returns the exit code; 0 by default. */
  run(call: Call<Options, Arguments>): Promise<number | undefined>;
}

/**
 * Types the handler of a command by the command's declarations. The returned type is the same for all commands, so that one list can hold them.
 *
 * @example
 * defineCommand({
 *   name: 'greet',
 *   summary: 'Greet a person',
 *   arguments: [{ name: 'person', help: 'name of the person', required: true }],
 *   options: [{ flags: '--max-times <count>', help: 'most greetings', parse: wholeNumber(1, 9) }],
 *   examples: [],
 *   // `person` is a string; `options.maxTimes` is a number or undefined.
 *   async run({ args: [person], options, terminal }) {
 *     for (let times = 0; times < (options.maxTimes ?? 1); times++) terminal.print(`Hello, ${person}.`);
 *     return 0;
 *   },
 * });
 */
export function defineCommand<
  const Options extends readonly Option[] = readonly [],
  const Arguments extends readonly Argument[] = readonly [],
>(command: Command<Options, Arguments> & Declared<Options, Arguments>): Command {
  return command;
}

/** Makes misspelt members of declarations an error of the compiler; the inferred types alone would accept them. */
interface Declared<Options extends readonly Option[], Arguments extends readonly Argument[]> {
  readonly options?: { readonly [At in keyof Options]: Only<Options[At], Option> };
  readonly arguments?: { readonly [At in keyof Arguments]: Only<Arguments[At], Argument> };
}

type Only<Value, Shape> = Value & { readonly [Name in Exclude<keyof Value, keyof Shape>]: never };

/** Values of options by their camel-cased long flags: `--if-revision` is `ifRevision`, `--no-wait` is `wait`. */
export type OptionValues<Options extends readonly Option[]> = {
  readonly [Each in Options[number] as OptionName<Each['flags']>]: OptionValue<Each>;
};

type OptionName<Flags extends string> = Flags extends `${string}--no-${infer Long}`
  ? CamelCase<Long>
  : Flags extends `${string}--${infer Long} ${string}`
    ? CamelCase<Long>
    : Flags extends `${string}--${infer Long}`
      ? CamelCase<Long>
      : never;

type CamelCase<Text extends string> = Text extends `${infer Word}-${infer Rest}`
  ? `${Word}${Capitalize<CamelCase<Rest>>}`
  : Text;

/** The parsed text of an option with `<…>`, or a list of texts if it may be repeated. For a flag, whether it is given; `--no-…` makes it false. */
type OptionValue<Declaration extends Option> = Declaration['flags'] extends `${string}<${string}`
  ? Declaration extends { readonly repeat: true }
    ? readonly ParsedValue<Declaration>[]
    : ParsedValue<Declaration> | undefined
  : boolean;

type ParsedValue<Declaration extends Option> = Declaration extends { readonly choices: readonly (infer Choice)[] }
  ? Choice
  : Declaration extends { readonly parse: (text: string) => infer Value }
    ? Value
    : string;

/** The words of the command line in the order of the declarations: one for each argument, any number for a `rest` argument. */
type ArgumentValues<Arguments extends readonly Argument[]> = Arguments extends readonly [
  infer First extends Argument,
  ...infer Following extends readonly Argument[],
]
  ? readonly [...Words<First>, ...ArgumentValues<Following>]
  : Arguments extends readonly []
    ? readonly []
    : readonly (string | undefined)[];

type Words<Declaration extends Argument> = Declaration extends { readonly rest: true }
  ? Declaration extends { readonly required: true }
    ? [string, ...string[]]
    : string[]
  : Declaration extends { readonly required: true }
    ? [string]
    : [string?];
