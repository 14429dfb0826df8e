import path from 'node:path';
import { RepeatedBuild } from '../builder.ts';
import { defineCommand } from '../command.ts';
import { deployOnce, devPlatform, invokeOnce, removeReplaced, showLogs } from '../dev/cycle.ts';
import { SourceWatch } from '../dev/watch.ts';
import { EXIT } from '../failure.ts';
import { quoted } from '../format.ts';
import { findFunction } from '../function-source.ts';
import { readInput } from '../input.ts';
import { createProject, TEMPLATES } from '../project/create.ts';

const [DEFAULT_TEMPLATE = ''] = Object.keys(TEMPLATES);

export const create = defineCommand({
  name: 'new',
  summary: 'Make a project: a typed function with its test',
  description:
    'Makes a folder with a function in TypeScript, its manifest, and a test that runs it on a platform of its own with the tiny model. ' +
    `Templates: ${Object.entries(TEMPLATES)
      .map(([name, does]) => `${name} (${does})`)
      .join(', ')}. Pie and its library come along as tarballs in vendor/.`,
  arguments: [{ name: 'name', help: 'name of the function and of its folder', required: true }],
  options: [
    {
      flags: '-t, --template <template>',
      help: `template to start from (default: ${DEFAULT_TEMPLATE})`,
      choices: Object.keys(TEMPLATES),
    },
  ],
  examples: [
    { line: 'pie new hello', does: 'continues a text; then: cd hello && npm install && npm test' },
    { line: 'pie new helper --template agent', does: 'creates an agent that calls tools over HTTP' },
  ],
  async run({ args: [name], options, terminal, signal }) {
    const { template = DEFAULT_TEMPLATE } = options;
    const folder = path.resolve(name);
    const progress = terminal.progress(`Making ${name}`);
    try {
      const files = await createProject(folder, name, template, signal);
      progress.done(`Made ${name} from the template ${template}`);
      for (const file of files) terminal.print(path.join(name, file));
      terminal.value({ folder, name, template, files });
      terminal.note(`Next: cd ${quoted(name)} && npm install && npm test && npx pie dev`);
      return EXIT.ok;
    } catch (error) {
      progress.clear();
      throw error;
    }
  },
});

export const dev = defineCommand({
  name: 'dev',
  summary: 'Deploy a function at every save, and show its log',
  description:
    'Uses the running platform, or else starts one that ends with this command. Builds and deploys now, and again whenever a file of the bundle is saved. ' +
    'After a build error, which it shows with its place, the earlier version stays. A new version deletes the one that the command made before. Ctrl-C ends it.',
  arguments: [
    { name: 'source', help: 'a folder with a pie.json, or a file (default: the current folder)', required: false },
  ],
  options: [
    { flags: '-i, --invoke <json>', help: 'invoke the function with this input after each deploy: JSON, or @file' },
  ],
  examples: [
    { line: 'pie dev', does: 'deploys the function of this folder at every save' },
    { line: `pie dev hello --invoke '{"prompt":"Once upon a time"}'`, does: 'also invokes the function at every save' },
  ],
  async run(call) {
    const { options, terminal, signal } = call;
    const [target = '.'] = call.args;
    const input = options.invoke === undefined ? undefined : readInput(options.invoke);
    // Fail on a wrong `source` before a platform starts.
    findFunction(target, undefined);
    try {
      await using platform = await devPlatform(call);
      terminal.value({ kind: 'serving', url: platform.url, own: platform.isOwn });
      using watch = new SourceWatch();
      await using builds = new RepeatedBuild();
      const following = new Following();
      try {
        let files: readonly string[] = [];
        /** Versions that this command made and has not replaced yet, by function. */
        const madeVersions = new Map<string, string>();
        for (;;) {
          const startedAt = Date.now();
          const cycle = await deployOnce(platform.client, target, builds, terminal, signal);
          const { deployed } = cycle;
          const name = deployed?.name ?? null;
          // After a failed build, watch the files of the last bundle too: a change to one of them may fix the build.
          files = name === null ? [...new Set([...files, ...cycle.files])] : cycle.files;
          watch.watch(files, startedAt, name === null);
          const replacedVersion = madeVersions.get(name ?? '');
          if (deployed !== null && deployed.version !== replacedVersion) {
            if (replacedVersion !== undefined)
              await removeReplaced(platform.client, deployed.name, replacedVersion, terminal, signal);
            if (deployed.created) madeVersions.set(deployed.name, deployed.version);
            else madeVersions.delete(deployed.name);
          }
          const superseded = new AbortController();
          const cycleSignal = AbortSignal.any([signal, superseded.signal]);
          if (name !== null)
            await following.follow(name, (endSignal, onBegun) =>
              showLogs(platform.client, name, terminal, endSignal, onBegun),
            );
          const invocation =
            name === null || input === undefined
              ? undefined
              : invokeOnce(platform.client, name, input, terminal, cycleSignal);
          try {
            // The next save ends this cycle and its invocation.
            await Promise.race([watch.change(signal), platform.ended]);
          } finally {
            superseded.abort();
            await invocation;
          }
        }
      } finally {
        await following.stop();
      }
    } catch (error) {
      // Ctrl-C is the normal end.
      if (!signal.aborted) throw error;
      return EXIT.ok;
    }
  },
});

/** Follows the log of the function that was deployed last. If following fails, the next deploy starts it again. */
export class Following {
  #name: string | null = null;
  #ending = new AbortController();
  #showing: Promise<void> = Promise.resolve();

  /** Resolves once following has begun or failed. A function invoked after that has its log lines shown, unless following failed. */
  follow(name: string, show: (endSignal: AbortSignal, onBegun: () => void) => Promise<void>): Promise<void> {
    if (name === this.#name) return Promise.resolve();
    this.#ending.abort();
    this.#ending = new AbortController();
    const { signal } = this.#ending;
    this.#name = name;
    return new Promise((onBegun) => {
      this.#showing = show(signal, onBegun).finally(() => {
        if (this.#ending.signal === signal) this.#name = null;
        onBegun();
      });
    });
  }

  async stop(): Promise<void> {
    this.#ending.abort();
    await this.#showing;
  }
}
