import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { type Built, buildComponent } from '../builder.ts';
import { type Command, text } from '../command.ts';
import { bytes, duration, quoted } from '../format.ts';
import { exampleInput, type FunctionSource, findFunction } from '../function-source.ts';

/** Source or component to a callable function. */
export const deploy: Command = {
  name: 'deploy',
  summary: 'Deploy a function',
  description:
    'Builds a function and deploys it as a new version, which becomes the current one. What did not change is neither built nor stored again.',
  arguments: [
    { name: 'source', help: 'a folder with a pie.json, a .ts or .js file, or a .wasm component', required: true },
  ],
  options: [{ flags: '-n, --name <name>', help: 'the name to deploy under (the manifest’s, else the file’s)' }],
  examples: [
    { line: 'pie deploy functions/text-completion', does: 'a folder with its manifest' },
    { line: 'pie deploy hello.ts', does: 'one file, as the function "hello"' },
    { line: 'pie deploy hello.wasm --name greeter', does: 'a component from any language' },
  ],
  async run({ args, options, terminal, connect, signal }) {
    const [target = ''] = args;
    const source = findFunction(target, text(options, 'name'));
    const { name } = source.manifest;
    const { client, credentials } = await connect();
    const progress = terminal.progress(`Building ${name}`);
    try {
      const { component, built } = await componentOf(source);
      progress.update(`Deploying ${name} (${bytes(component.byteLength)})`);
      const startedAt = performance.now();
      const deployed = await client.deploy(source.manifest, component, { signal });
      const deployMs = performance.now() - startedAt;
      const url = `${credentials.url}/v1/functions/${encodeURIComponent(name)}`;
      const buildTime =
        built === null ? 'as it was' : `built in ${duration(built.buildMs)}${built.cached ? ' (unchanged)' : ''}`;
      progress.done(`${bytes(component.byteLength)}, ${buildTime}, deployed in ${duration(deployMs)}`);
      terminal.print(
        `${name}@${deployed.version}  ${deployed.created ? 'new version' : 'this content was deployed before'}`,
      );
      terminal.print(`${url}/invocations`);
      terminal.value({
        ...deployed,
        url,
        buildMs: built === null ? null : Math.round(built.buildMs),
        buildCached: built?.cached ?? null,
        deployMs: Math.round(deployMs),
      });
      terminal.note(`Next: pie invoke ${name} --input ${quoted(JSON.stringify(exampleInput(source.manifest)))}`);
      return 0;
    } catch (error) {
      progress.clear();
      throw error;
    }
  },
};

async function componentOf(
  source: FunctionSource,
): Promise<{ component: Uint8Array<ArrayBuffer>; built: Built | null }> {
  if (source.kind === 'component') return { component: new Uint8Array(readFileSync(source.entry)), built: null };
  const folder = mkdtempSync(path.join(os.tmpdir(), 'pie-build-'));
  try {
    const out = path.join(folder, 'component.wasm');
    const built = await buildComponent(source.entry, out);
    return { component: new Uint8Array(readFileSync(out)), built: { ...built, bytes: statSync(out).size } };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
