import { copyFileSync, mkdtempSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { LIVE } from '#scheduler/functions/aliases.ts';
import type { Draining, FunctionVersion, Health, Share } from '../../app/control.ts';
import type { PieClient } from '../../client/client.ts';
import { type Built, buildSource, drawGraph } from '../builder.ts';
import { type Call, defineCommand } from '../command.ts';
import { differenceLines, sharesText } from '../deploy-report.ts';
import { EXIT, Failure } from '../failure.ts';
import { ago, bytes, counted, duration, quoted } from '../format.ts';
import { findFunction, isNative } from '../function-source.ts';
import { exampleInput, readInput } from '../input.ts';
import { confirm } from '../terminal.ts';

const name = { name: 'function', help: 'name of the function', required: true } as const;

export const list = defineCommand({
  name: 'list',
  summary: 'List the functions',
  examples: [{ line: 'pie list', does: 'shows version, size and age of each function' }],
  async run({ terminal, signal, connect }) {
    const { client } = await connect();
    const functions = await client.functions({ signal });
    terminal.value(functions);
    terminal.table(
      ['NAME', 'LIVE', 'SIZE', 'DEPLOYED', 'DESCRIPTION'],
      functions.map((f) => [
        f.name,
        `${liveText(f)}${f.quarantinedAt === undefined ? '' : ' (quarantined)'}`,
        bytes(f.componentBytes),
        ago(f.createdAt),
        `${f.manifest.description ?? ''}${f.platform === true ? ' (the platform’s)' : ''}`.trim(),
      ]),
      'No function is deployed yet. Next: pie deploy functions/text-completion',
    );
    // The list is complete without this remark.
    const { pendingFunctions = [] } = await client.ready({ signal }).catch(() => ({}) as Partial<Health>);
    for (const pending of pendingFunctions) terminal.note(pendingLine(pending));
    return EXIT.ok;
  },
});

function pendingLine({ name, state, tries, why, nextTryAt }: Pending): string {
  if (state === 'building') return `${name} came with Pie, and is being built.`;
  if (state === 'waiting') return `${name} came with Pie, and is deployed soon.`;
  const again = nextTryAt === undefined ? 'soon' : `at ${nextTryAt}`;
  return `${name} came with Pie, and could not be deployed (${counted(tries, 'failed attempt')}: ${why ?? 'no reason is known'}). The next try comes ${again}.`;
}

type Pending = NonNullable<Health['pendingFunctions']>[number];

export const versions = defineCommand({
  name: 'versions',
  summary: 'List the versions of a function, newest first',
  arguments: [name],
  description:
    'Lists the versions of a function, newest first, each with the names that serve it, its description and its author.',
  examples: [{ line: 'pie versions text-completion', does: 'lists the versions; invoke one with name@version' }],
  async run({ args: [name], terminal, signal, connect }) {
    if (name.includes('@'))
      throw new Failure(
        `"${name}" names one version or alias, but \`pie versions\` lists all versions of a function.`,
        {
          advice: `Write \`pie versions ${name.slice(0, name.indexOf('@'))}\`.`,
        },
      );
    const { client } = await connect();
    const functionVersions = await client.versions(name, { signal });
    terminal.value(functionVersions);
    terminal.table(
      ['VERSION', 'ALIASES', 'SIZE', 'ENGINE', 'DEPLOYED', 'BY', 'MESSAGE'],
      functionVersions.map((f) => [
        `${f.version}${f.quarantinedAt === undefined ? '' : ' (quarantined)'}`,
        aliasesText(f),
        bytes(f.componentBytes),
        f.engine?.slice(0, 12) ?? '',
        ago(f.createdAt),
        f.createdBy ?? '',
        `${f.message ?? ''}${f.platform === true ? ' (the platform’s)' : ''}`.trim(),
      ]),
      'There are none.',
    );
    return EXIT.ok;
  },
});

/** The version that `live` serves, or several with their weights. */
function liveText({ version, live }: FunctionVersion): string {
  if (live === undefined) return version;
  return live.length === 0 ? '-' : sharesText(live);
}

/** The aliases and tags that serve a version, such as `live 90 %, canary, v1.2`. */
function aliasesText({ aliases = [] }: FunctionVersion): string {
  return aliases.map(({ alias, weight }) => (weight === 100 ? alias : `${alias} ${weight} %`)).join(', ') || '-';
}

/** Interval between checks of a draining removal. */
const POLL_MS = 500;

const functionName = { name: 'function', help: 'name of the function', required: true } as const;
const alias = { name: 'alias', help: 'name of the alias, such as live or canary', required: true } as const;
const message = { flags: '-m, --message <text>', help: 'reason, stored in the history' } as const;

export const aliasList = defineCommand({
  name: 'alias list',
  summary: 'Show the versions that the aliases of a function serve',
  description: 'Shows the version of each alias and tag of a function, or the history of one alias.',
  arguments: [functionName, { ...alias, required: false, help: 'show its history instead' }],
  examples: [
    { line: 'pie alias list story', does: 'lists live and the other aliases and tags' },
    { line: 'pie alias list story live', does: 'lists earlier versions of story, newest first' },
  ],
  async run({ args: [fn, aliasName], terminal, signal, connect }) {
    const { client } = await connect();
    const states =
      aliasName === undefined
        ? await client.aliases(fn, { signal })
        : await client.aliasHistory(fn, aliasName, { signal });
    terminal.value(states);
    terminal.table(
      [aliasName === undefined ? 'ALIAS' : 'REVISION', 'SERVES', 'CHANGED', 'BY', 'MESSAGE'],
      states.map((state) => [
        aliasName === undefined ? `${state.alias}${state.tag === true ? ' (tag)' : ''}` : String(state.revision),
        sharesText(state.shares),
        ago(state.changedAt),
        state.changedBy,
        [state.message, state.restores === undefined ? undefined : `(back to revision ${state.restores})`]
          .filter(Boolean)
          .join(' '),
      ]),
      `No alias serves ${fn}. Next: pie alias set ${fn} ${LIVE} VERSION`,
    );
    return EXIT.ok;
  },
});

export const aliasSet = defineCommand({
  name: 'alias set',
  summary: 'Point an alias at a version, or split it between several',
  description:
    'Points an alias at one or several versions, in one step; existing invocations keep their version. A version may be given by its first four or more digits, or by a tag.',
  arguments: [
    functionName,
    alias,
    { name: 'shares', help: 'a version, or several as version=percent', required: true, rest: true },
  ],
  options: [
    message,
    {
      flags: '--if-revision <number>',
      help: 'refuse if the alias was changed after this revision',
      parse: parseRevision,
    },
  ],
  examples: [
    { line: 'pie alias set story live 3f2a=90 9c1b=10', does: 'sends nine of ten invocations to 3f2a…' },
    { line: 'pie alias set story canary 9c1b', does: 'makes story@canary run 9c1b…' },
  ],
  async run({ args: [fn, aliasName, ...shareTexts], options, terminal, signal, connect }) {
    const { message, ifRevision } = options;
    const shares = parseShares(shareTexts);
    const { client } = await connect();
    const changedAlias = await client.setAlias(fn, aliasName, { shares, message, ifRevision }, { signal });
    terminal.value(changedAlias);
    terminal.print(
      `${fn}@${changedAlias.alias} serves ${sharesText(changedAlias.shares)} (revision ${changedAlias.revision}).`,
    );
    return EXIT.ok;
  },
});

export const aliasRemove = defineCommand({
  name: 'alias remove',
  summary: 'Remove an alias or a tag; its versions stay',
  arguments: [functionName, alias],
  examples: [{ line: 'pie alias remove story canary', does: 'removes story@canary' }],
  async run({ args: [fn, aliasName], terminal, signal, connect }) {
    const { client } = await connect();
    await client.removeAlias(fn, aliasName, { signal });
    terminal.value({ removed: `${fn}@${aliasName}` });
    terminal.print(`Removed ${fn}@${aliasName}.`);
    return EXIT.ok;
  },
});

export const rollback = defineCommand({
  name: 'rollback',
  summary: 'Return a function to an earlier version',
  description:
    'Makes an alias serve its previous version again, or a given version, and shows the change. Two rollbacks go two steps back. ' +
    'Running invocations keep their version. The command asks first; use --yes in scripts.',
  arguments: [functionName],
  options: [
    { flags: '--to <version>', help: 'a version, its first digits, or a tag (default: the previous version)' },
    { flags: '-a, --alias <alias>', help: 'alias to change (default: live)' },
    message,
    { flags: '-y, --yes', help: 'do not ask' },
    { flags: '--dry-run', help: 'only show what would change' },
  ],
  examples: [
    { line: 'pie rollback story', does: 'asks, then returns to the previous version' },
    { line: 'pie rollback story --to 9c1b --message "timeouts" --yes', does: 'returns to a version without asking' },
  ],
  async run({ args: [fn], options, terminal, signal, connect }) {
    const { client } = await connect();
    const request = { alias: options.alias, to: options.to, message: options.message };
    const plan = await client.rollback(fn, { ...request, dryRun: true }, { signal });
    terminal.print(`${fn}@${plan.alias.alias}: ${sharesText(plan.from)} → ${sharesText(plan.to)}`);
    for (const line of differenceLines(plan.changes)) terminal.print(line);
    if (plan.changes.length === 0) terminal.print('  the same content, by other weights');
    if (options.dryRun) {
      terminal.value(plan);
      return EXIT.ok;
    }
    await confirm('Roll back?', options.yes, signal);
    // Pass the plan's revision: the gateway then rolls back exactly as shown, or refuses.
    const { revision } = plan.alias;
    const result = await client.rollback(fn, { ...request, ifRevision: revision }, { signal });
    terminal.value(result);
    terminal.print(`Rolled back: ${fn}@${result.alias.alias} serves ${sharesText(result.alias.shares)}.`);
    return EXIT.ok;
  },
});

export const remove = defineCommand({
  name: 'remove',
  summary: 'Remove a function, or one version of it',
  description:
    'From then on, no new invocation runs the function, and its name is free. The command waits until the last invocation has ended and the function is ' +
    'deleted; Ctrl-C ends the wait, not the removal. A version (name@version, its first digits, or a tag) can be removed when no alias serves it.',
  arguments: [functionName],
  options: [
    { flags: '--now', help: 'cancel its invocations instead of letting them end' },
    { flags: '--no-wait', help: 'do not wait until its last invocation has ended' },
  ],
  examples: [
    { line: 'pie remove hello', does: 'removes hello and lets its invocations end' },
    { line: 'pie remove hello --now', does: 'removes hello and cancels its invocations' },
    { line: 'pie remove hello@9c1b2f03aa51', does: 'removes one version' },
  ],
  async run(call) {
    const { options, terminal, signal, connect } = call;
    const [reference] = call.args;
    const { client } = await connect();
    const at = reference.indexOf('@');
    const fn = at < 0 ? reference : reference.slice(0, at);
    const onlyVersion = at < 0 ? undefined : reference.slice(at + 1);
    if (fn === '' || onlyVersion === '')
      throw new Failure(`"${reference}" does not contain a function name.`, {
        advice: 'Write its name, or name@version.',
      });
    const { now } = options;
    const initialDraining =
      onlyVersion === undefined
        ? await client.removeFunction(fn, { signal, now })
        : await client.removeVersion(fn, onlyVersion, { signal, now });
    const draining = options.wait ? await waitForDrain(call, client, fn, initialDraining) : initialDraining;
    terminal.value({ removed: reference, draining });
    terminal.print(
      draining.length === 0 ? `Removed ${reference}.` : `Removed ${reference}; draining: ${unfinishedText(draining)}.`,
    );
    return EXIT.ok;
  },
});

/** Waits until the removed versions have drained. Returns the versions that still drain when Ctrl-C ends the wait. */
async function waitForDrain(
  { terminal, signal }: Call,
  client: PieClient,
  fn: string,
  initialDraining: readonly Draining[],
): Promise<readonly Draining[]> {
  const ofThisRemoval = (all: readonly Draining[]) =>
    all.filter(({ version }) => initialDraining.some((one) => one.version === version));
  let stillDraining = initialDraining;
  if (stillDraining.length === 0) return stillDraining;
  const progress = terminal.progress(`draining: ${unfinishedText(stillDraining)}`);
  try {
    while (stillDraining.length > 0) {
      await sleep(POLL_MS, undefined, { signal });
      stillDraining = ofThisRemoval(await client.draining(fn, { signal }));
      progress.update(`draining: ${unfinishedText(stillDraining)}`);
    }
    progress.done('drained');
  } catch (error) {
    progress.clear();
    if (!signal.aborted) throw error;
  }
  return stillDraining;
}

function unfinishedText(draining: readonly Draining[]): string {
  return counted(
    draining.reduce((sum, { unfinished }) => sum + unfinished, 0),
    'invocation',
  );
}

function parseShares(shareTexts: readonly string[]): Share[] {
  const [onlyText] = shareTexts;
  if (shareTexts.length === 1 && onlyText !== undefined && !onlyText.includes('='))
    return [{ version: onlyText, weight: 100 }];
  return shareTexts.map((part) => {
    const [version = '', percent = '', excess] = part.split('=');
    const weight = Number(percent.replace(/%$/, ''));
    if (version !== '' && percent !== '' && excess === undefined && Number.isInteger(weight))
      return { version, weight };
    throw new Failure(`"${part}" is not a version with its percentage.`, {
      why: 'With several versions, each needs a percentage.',
      advice: 'Write version=percent, such as 3f2a=90 9c1b=10; together they make 100.',
    });
  });
}

function parseRevision(value: string): number {
  const number = Number(value);
  if (Number.isInteger(number) && number >= 0) return number;
  throw new Failure('It must be a whole number, 0 or more.');
}

export const quarantineLift = defineCommand({
  name: 'quarantine lift',
  summary: 'Let a quarantined function run again',
  description:
    'A version is quarantined when its sandbox crashed or stopped answering twice within ten minutes while no other version computed in it. A quarantined version does not run. ' +
    'The command lifts the quarantine of all versions of the function; `pie list` shows quarantined functions. A new version is not quarantined.',
  arguments: [{ name: 'function', help: 'name of the function', required: true }],
  examples: [{ line: 'pie quarantine lift story', does: 'lets story run again' }],
  async run({ args: [fn], terminal, signal, connect }) {
    const { client } = await connect();
    const lifted = await client.liftQuarantine(fn, { signal });
    terminal.value({ function: fn, lifted });
    terminal.print(
      lifted.length === 0
        ? `No version of ${fn} is quarantined.`
        : `Lifted the quarantine of ${counted(lifted.length, 'version')} of ${fn}: ${lifted.join(', ')}.`,
    );
    return EXIT.ok;
  },
});

export const graph = defineCommand({
  name: 'graph',
  summary: 'Draw the graph of a workflow before and after its passes',
  description:
    'Makes the graph of a workflow (@pie/inferlet/workflow) for an input, on this machine and without a platform, and draws it as text and as ' +
    "an SVG file. The source exports the workflow beside 'run'.",
  arguments: [
    {
      name: 'source',
      help: 'a folder with a pie.json, or a .ts or .js file (default: the current folder)',
      required: false,
    },
  ],
  options: [
    {
      flags: '-i, --input <json>',
      help: 'input: JSON, @file, or - for standard input (default: the example of pie.json)',
    },
    { flags: '-o, --out <file>', help: "file to write (default: the function's name with .svg)" },
  ],
  examples: [
    { line: 'pie graph functions/document-qa', does: 'draws the graph for the example of its pie.json' },
    { line: 'pie graph app.ts --input @input.json -o app.svg', does: 'draws the graph for an input' },
  ],
  async run({ args: [target = '.'], options, terminal }) {
    const source = findFunction(target, undefined);
    if (source.kind !== 'source') {
      throw new Failure(`${target} is a ${source.kind}.`, {
        advice: 'Name its source file or folder: `pie graph` reads the source.',
      });
    }
    const input = options.input === undefined ? exampleInput(source.manifest) : readInput(options.input);
    const outFile = path.resolve(options.out ?? `${source.manifest.name}.svg`);
    const scratch = mkdtempSync(path.join(os.tmpdir(), 'pie-graph-'));
    try {
      const file = path.join(scratch, 'input.json');
      writeFileSync(file, JSON.stringify(input));
      const { before, after } = await drawGraph(source.entry, outFile, file);
      const shownPath = path.relative(process.cwd(), outFile);
      terminal.print(`${before}\n\nafter the passes\n\n${after}\n\n${shownPath}`);
      terminal.value({ before, after, file: outFile });
      return 0;
    } finally {
      rmSync(scratch, { recursive: true, force: true });
    }
  },
});

export const build = defineCommand({
  name: 'build',
  summary: 'Build a function without deploying it',
  description:
    'Writes a file that `pie deploy` and the HTTP API deploy on any platform: a script (.pie) for TypeScript and JavaScript, a component (.wasm) for C, Rust ' +
    'and core modules.',
  arguments: [
    {
      name: 'source',
      help: 'a folder with a pie.json, or a .ts, .js, .c or .rs file (default: the current folder)',
      required: false,
    },
  ],
  options: [
    {
      flags: '-o, --out <file>',
      help: "file to write (default: the function's name with .pie, or .wasm for a component)",
    },
  ],
  examples: [
    { line: 'pie build hello.ts', does: 'builds the script hello.pie from one file' },
    { line: 'pie build kernels.c -o kernels.wasm', does: 'builds a component from C' },
  ],
  async run({ args: [target = '.'], options, terminal }) {
    const source = findFunction(target, undefined);
    const { kind, entry, manifest } = source;
    const made = kind === 'component' || (kind === 'source' && isNative(entry)) ? 'component' : 'script';
    const out = path.resolve(options.out ?? `${manifest.name}${made === 'script' ? '.pie' : '.wasm'}`);
    if (path.resolve(entry) === out) {
      throw kind === 'source'
        ? new Failure(`The ${made} would replace ${target}.`, { advice: 'Name another file with --out.' })
        : new Failure(`${target} is a ${made} already.`, { advice: `Deploy it: \`pie deploy ${target}\`.` });
    }
    const shownPath = path.relative(process.cwd(), out);
    if (kind !== 'source') {
      copyFileSync(entry, out);
      const { size } = statSync(out);
      terminal.print(`${shownPath}  ${bytes(size)}`);
      terminal.value({ file: out, bytes: size, buildMs: null, notes: [] });
      terminal.note(`${target} is a ${made} already: it was copied.`);
      return 0;
    }
    const progress = terminal.progress(`Building ${target}`);
    let built: Built;
    try {
      built = await buildSource(entry);
      writeWhole(out, built.component);
    } catch (error) {
      progress.clear();
      throw error;
    }
    const { component, buildMs, notes } = built;
    progress.done(`Built ${target} in ${duration(buildMs)}`);
    terminal.print(`${shownPath}  ${bytes(component.byteLength)}`);
    terminal.value({ file: out, bytes: component.byteLength, buildMs: Math.round(buildMs), notes });
    for (const note of notes) terminal.note(`note: ${note}`);
    terminal.note(`Next: pie deploy ${quoted(shownPath)} --name ${manifest.name}`);
    return 0;
  },
});

/** Writes a file in one step, so that no reader sees a part of it. */
function writeWhole(file: string, bytes: Uint8Array): void {
  const temporary = `${file}.${process.pid}`;
  try {
    writeFileSync(temporary, bytes);
    renameSync(temporary, file);
  } catch (error) {
    rmSync(temporary, { force: true });
    throw error;
  }
}
