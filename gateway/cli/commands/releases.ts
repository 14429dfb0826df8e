import { setTimeout as sleep } from 'node:timers/promises';
import { LIVE } from '#scheduler/functions/aliases.ts';
import type { Draining, Share } from '../../app/resources/releases.ts';
import type { PieClient } from '../../client/client.ts';
import { type Call, defineCommand } from '../command.ts';
import { confirm } from '../confirm.ts';
import { differenceLines, sharesText } from '../deploy-report.ts';
import { EXIT, Failure } from '../failure.ts';
import { ago, counted } from '../format.ts';

/** Interval between checks of a draining removal. */
const POLL_MS = 500;

const name = { name: 'function', help: 'name of the function', required: true } as const;
const alias = { name: 'alias', help: 'name of the alias, such as live or canary', required: true } as const;
const message = { flags: '-m, --message <text>', help: 'reason, stored in the history' } as const;

export const aliasList = defineCommand({
  name: 'alias list',
  summary: 'Show the versions that the aliases of a function serve',
  description: 'Shows the version of each alias and tag of a function, or the history of one alias.',
  arguments: [name, { ...alias, required: false, help: 'show its history instead' }],
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
    name,
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
  arguments: [name, alias],
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
  arguments: [name],
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
  arguments: [name],
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
