import { defineCommand } from '../command.ts';
import { deployOnce, invokeOnce, removeReplaced, showLogs } from '../dev/cycle.ts';
import { devPlatform } from '../dev/platform.ts';
import { SourceWatch } from '../dev/watch.ts';
import { EXIT } from '../failure.ts';
import { findFunction } from '../function-source.ts';
import { readInput } from './input.ts';

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
      const following = new Following();
      try {
        let files: readonly string[] = [];
        /** Versions that this command made and has not replaced yet, by function. */
        const madeVersions = new Map<string, string>();
        for (;;) {
          const startedAt = Date.now();
          const cycle = await deployOnce(platform.client, target, terminal, signal);
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
