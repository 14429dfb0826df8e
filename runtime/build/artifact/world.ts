import { componentWit } from '@bytecodealliance/jco-transpile/wasm-tools';
import type { WitFunction, WitInterface, WitType } from '#wit/generate/model.ts';
import { world } from '#wit/generated/world.ts';
import { BuildError } from '../outcome.ts';
import { functionText, type ImportedInterface, readComponentImports } from '../wasm/component-imports.ts';

const RUN = `export run: ${typeOf(world.exports.find(({ name }) => name === 'run'))};`;

const HINT = `Build it against wit/ of this version (${world.package}@${world.version}, world '${world.name}'): \`pie deploy\` does it for JavaScript and TypeScript; in other languages turn WASI off or adapt it away.`;

/**
 * Checks that a component matches the contract's world: its `run` and all imported functions must have the contract's types. Types are
 * compared by structure, because the structure decides how the host reads the guest's memory. Returns the imported interfaces. Throws
 * BuildError `wrong-world`.
 */
export async function checkWorld(component: Uint8Array): Promise<string[]> {
  const { interfaces, others } = readComponentImports(component);
  const foreign = [...others, ...interfaces.map(({ name }) => name).filter((name) => !find(name))];
  if (foreign.length > 0) {
    throw new BuildError(
      'wrong-world',
      `The component imports interfaces that an inferlet cannot have: ${list(foreign)}.`,
      HINT,
    );
  }
  for (const imported of interfaces) checkInterface(imported);
  const wit = await componentWit(component);
  const run = /^\s*export run: .*$/m.exec(wit)?.[0]?.trim();
  if (run === undefined) {
    throw new BuildError('wrong-world', 'The component does not export `run`.', HINT);
  }
  if (run !== RUN) {
    throw new BuildError(
      'wrong-world',
      `The component's \`run\` has another type: "${clip(run)}", not "${RUN}".`,
      HINT,
    );
  }
  return interfaces.map(({ name }) => name);
}

/** The contract's interface of this name, in any patch version of our minor version; `checkInterface` refuses functions that ours lacks. */
function find(name: string): WitInterface | undefined {
  const match = /^(.*)@(\d+\.\d+)\.\d+$/.exec(name);
  const minor = world.version.split('.').slice(0, 2).join('.');
  return match?.[2] === minor ? world.imports.find((entry) => entry.id.startsWith(`${match[1]}@`)) : undefined;
}

function checkInterface({ name, functions, resources }: ImportedInterface): void {
  const ours = find(name);
  const known = new Map(
    [...(ours?.functions ?? []), ...(ours?.resources.flatMap((resource) => resource.functions) ?? [])].map((item) => [
      item.coreName,
      typeOf(item),
    ]),
  );
  for (const [item, type] of functions) {
    const expected = known.get(item);
    if (expected === undefined) {
      throw new BuildError(
        'wrong-world',
        `The component imports ${name} ${item}, which this version does not have.`,
        HINT,
      );
    }
    if (expected !== type) {
      throw new BuildError(
        'wrong-world',
        `The component imports ${name} ${item} as ${clip(type)}; it is ${clip(expected)}.`,
        HINT,
      );
    }
  }
  const unknown = resources.filter((resource) => !ours?.resources.some((entry) => entry.name === resource));
  if (unknown.length > 0) {
    throw new BuildError('wrong-world', `${name} has no resource ${list(unknown)}.`, HINT);
  }
}

/** Shortens a type for a message. */
const clip = (text: string): string => printable(text.length > 300 ? `${text.slice(0, 300)}…` : text);

/** Replaces unprintable characters: names in a component may be any text, and messages reach terminals. */
const printable = (text: string): string => text.replace(/[^\x20-\x7e…]/g, '?');

function list(names: readonly string[]): string {
  const shown = clip(names.slice(0, 8).join(', '));
  return names.length > 8 ? `${shown} and ${names.length - 8} more` : shown;
}

/** The type of a contract function, in the notation in which `readComponentImports` writes the types of imports. */
function typeOf(item: WitFunction | undefined): string {
  if (!item) throw new Error('the world has no `run`');
  const params = item.params.map((param) => `${param.name}: ${typeText(param.type)}`);
  const self = item.kind === 'method' ? [`self: borrow<${item.resource}>`] : [];
  return functionText(item.async, [...self, ...params], item.result && typeText(item.result));
}

function typeText(type: WitType | null): string {
  if (!type) return '_';
  switch (type.kind) {
    case 'list':
      return `list<${typeText(type.element)}>`;
    case 'option':
      return `option<${typeText(type.value)}>`;
    case 'future':
      return `future<${typeText(type.value)}>`;
    case 'result':
      return `result<${typeText(type.ok)}, ${typeText(type.err)}>`;
    case 'tuple':
      return `tuple<${type.items.map(typeText).join(', ')}>`;
    case 'own':
    case 'borrow':
      return `${type.kind}<${type.resource}>`;
    case 'record':
      return `record { ${type.fields.map((field) => `${field.name}: ${typeText(field.type)}`).join(', ')} }`;
    case 'variant':
      return `variant { ${type.cases.map(({ name, type: value }) => (value ? `${name}(${typeText(value)})` : name)).join(', ')} }`;
    case 'enum':
      return `enum { ${type.cases.map(({ name }) => name).join(', ')} }`;
    default:
      return type.kind;
  }
}
