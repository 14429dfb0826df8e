import { type Command, text } from '../command.ts';
import { deployFunction } from '../deployment.ts';
import { bytes, duration, quoted } from '../format.ts';
import { exampleInput, findFunction } from '../function-source.ts';

/** Source or component to a callable function. */
export const deploy: Command = {
  name: 'deploy',
  summary: 'Deploy a function',
  description:
    'Builds a function and deploys it as a new version, which becomes the current one. What did not change is neither built nor stored again.',
  arguments: [
    {
      name: 'source',
      help: 'a folder with a pie.json, a .ts or .js file, or a .wasm component (the current folder without it)',
      required: false,
    },
  ],
  options: [{ flags: '-n, --name <name>', help: 'the name to deploy under (the manifest’s, else the file’s)' }],
  examples: [
    { line: 'pie deploy functions/text-completion', does: 'a folder with its manifest' },
    { line: 'pie deploy hello.ts', does: 'one file, as the function "hello"' },
    { line: 'pie deploy hello.wasm --name greeter', does: 'a component from any language' },
  ],
  async run({ args, options, terminal, connect, signal }) {
    const [target = '.'] = args;
    const source = findFunction(target, text(options, 'name'));
    const { name } = source.manifest;
    const { client, credentials } = await connect();
    const progress = terminal.progress(`Building ${name}`);
    try {
      const deployment = await deployFunction(client, source, {
        signal,
        onBuilt: (size) => progress.update(`Deploying ${name} (${bytes(size)})`),
      });
      const { deployed, built, deployMs } = deployment;
      const url = `${credentials.url}/v1/functions/${encodeURIComponent(name)}`;
      const buildTime =
        built === null ? 'as it was' : `built in ${duration(built.buildMs)}${built.cached ? ' (unchanged)' : ''}`;
      progress.done(`${bytes(deployment.bytes)}, ${buildTime}, deployed in ${duration(deployMs)}`);
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
