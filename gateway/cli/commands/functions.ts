import type { FunctionVersion, Health } from '../../app/control.ts';
import { defineCommand } from '../command.ts';
import { sharesText } from '../deploy-report.ts';
import { EXIT, Failure } from '../failure.ts';
import { ago, bytes, counted } from '../format.ts';

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
    // The list is complete without this remark, which an older gateway does not know.
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
      ['VERSION', 'ALIASES', 'SIZE', 'DEPLOYED', 'BY', 'MESSAGE'],
      functionVersions.map((f) => [
        `${f.version}${f.quarantinedAt === undefined ? '' : ' (quarantined)'}`,
        aliasesText(f),
        bytes(f.componentBytes),
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
