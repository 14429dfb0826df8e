import path from 'node:path';
import { defineCommand } from '../command.ts';
import { EXIT } from '../failure.ts';
import { quoted } from '../format.ts';
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
