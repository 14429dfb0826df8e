import os from 'node:os';
import { type Call, type Command, text } from '../command.ts';
import { type Deployment, deployFunction } from '../deployment.ts';
import { EXIT, Failure, toFailure } from '../failure.ts';
import { bytes, counted, duration, quoted } from '../format.ts';
import { exampleInput, type FunctionSource, findFunction } from '../function-source.ts';

/** Builds at once: each takes a core and up to half a GiB. */
const AT_ONCE = Math.min(4, os.availableParallelism());

/** Source or component to a callable function. */
export const deploy: Command = {
  name: 'deploy',
  summary: 'Deploy functions',
  description:
    'Builds a function and deploys it as a new version, which becomes the current one. What did not change is neither built nor stored again. ' +
    'Of several, those that can be deployed are, whatever the others come to.',
  arguments: [
    {
      name: 'source',
      help: 'a folder with a pie.json, a .ts or .js file, or a .wasm component (the current folder without it); or several',
      required: false,
      rest: true,
    },
  ],
  options: [
    { flags: '-n, --name <name>', help: 'the name to deploy under (the manifest’s, else the file’s)' },
    { flags: '-j, --jobs <count>', help: `of several, so many at once (${AT_ONCE} here)`, parse: jobCount },
  ],
  examples: [
    { line: 'pie deploy functions/text-completion', does: 'a folder with its manifest' },
    { line: 'pie deploy hello.ts', does: 'one file, as the function "hello"' },
    { line: 'pie deploy hello.wasm --name greeter', does: 'a component from any language' },
    { line: 'pie deploy functions/tree-of-thought functions/rag', does: 'two functions' },
  ],
  async run(call) {
    const { args, options } = call;
    const name = text(options, 'name');
    if (args.length <= 1) return deployOne(call, findFunction(args[0] ?? '.', name));
    if (name !== undefined)
      throw new Failure('Several functions cannot have one name.', { advice: 'Leave --name out.' });
    return deployAll(
      call,
      args.map((target) => findFunction(target, undefined)),
    );
  },
};

async function deployOne({ terminal, connect, signal }: Call, source: FunctionSource): Promise<number> {
  const { name } = source.manifest;
  const { client, credentials } = await connect();
  const progress = terminal.progress(`Building ${name}`);
  try {
    const deployment = await deployFunction(client, source, {
      signal,
      onBuilt: (size) => progress.update(`Deploying ${name} (${bytes(size)})`),
    });
    const { built, deployMs } = deployment;
    const url = addressOf(credentials.url, name);
    const buildTime =
      built === null ? 'as it was' : `built in ${duration(built.buildMs)}${built.cached ? ' (unchanged)' : ''}`;
    progress.done(`${bytes(deployment.bytes)}, ${buildTime}, deployed in ${duration(deployMs)}`);
    terminal.print(lineOf(deployment));
    terminal.print(`${url}/invocations`);
    terminal.value(shownOf(deployment, url));
    terminal.note(`Next: pie invoke ${name} --input ${quoted(JSON.stringify(exampleInput(source.manifest)))}`);
    return EXIT.ok;
  } catch (error) {
    progress.clear();
    throw error;
  }
}

/** Deploys a few at a time. Returns the exit code of the first failure. */
async function deployAll(
  { options, terminal, connect, signal }: Call,
  sources: readonly FunctionSource[],
): Promise<number> {
  const { client, credentials } = await connect();
  const startedAt = performance.now();
  const progress = terminal.progress(`Deploying ${counted(sources.length, 'function')}`);
  const failures: Failure[] = [];
  const waiting = sources.values();
  let done = 0;
  let created = 0;
  const work = async () => {
    for (const source of waiting) {
      const { name } = source.manifest;
      try {
        const deployment = await deployFunction(client, source, { signal });
        if (deployment.deployed.created) created++;
        terminal.value(shownOf(deployment, addressOf(credentials.url, name)));
      } catch (error) {
        signal.throwIfAborted();
        failures.push(about(name, toFailure(error)));
      }
      progress.update(`Deploying: ${++done} of ${sources.length}, last ${name}`);
    }
  };
  try {
    await Promise.all(Array.from({ length: typeof options.jobs === 'number' ? options.jobs : AT_ONCE }, work));
  } catch (error) {
    progress.clear();
    throw error;
  }
  const took = duration(performance.now() - startedAt);
  const well = counted(sources.length - failures.length, 'function');
  progress.done(`Deployed ${well}, ${created} of them new or changed, in ${took}`);
  for (const failure of failures) terminal.failure(failure);
  return failures[0]?.exitCode ?? EXIT.ok;
}

function about(name: string, failure: Failure): Failure {
  return new Failure(`${name}: ${failure.message}`, { ...failure, cause: failure.cause });
}

const addressOf = (url: string, name: string): string => `${url}/v1/functions/${encodeURIComponent(name)}`;

function lineOf({ deployed }: Deployment): string {
  return `${deployed.name}@${deployed.version}  ${deployed.created ? 'new version' : 'this content was deployed before'}`;
}

function shownOf({ deployed, built, deployMs }: Deployment, url: string): object {
  return {
    ...deployed,
    url,
    buildMs: built === null ? null : Math.round(built.buildMs),
    buildCached: built?.cached ?? null,
    deployMs: Math.round(deployMs),
  };
}

function jobCount(value: string): number {
  const count = Number(value);
  if (Number.isInteger(count) && count > 0 && count <= 64) return count;
  throw new Failure('It must be a whole number from 1 to 64.');
}
