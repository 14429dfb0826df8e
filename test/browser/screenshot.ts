/** Writes the README's pictures of the dashboard into `docs/`: `npm run screenshot`, after a change of the overview or the playground. */
import path from 'node:path';
import { Platform, ROOT } from '#test/harness/platform.ts';
import { submit } from '#test/harness/tenants.ts';
import { launchChromium, signIn } from './chromium.ts';

const STORIES = 12;
/** The page shows these while it is photographed: conversations that wait for their client. */
const RUNNING = ['Good morning', 'Hello', 'How are you?'];
const OVERVIEW = path.join(ROOT, 'docs/dashboard.png');
const PLAYGROUND = path.join(ROOT, 'docs/playground.png');

await using platform = await Platform.start({ functions: ['text-completion', 'echo-session'] });
const browser = await launchChromium();
try {
  const page = await browser.newPage({ viewport: { width: 1120, height: 700 } });
  await signIn(page, platform);
  for (const greeting of RUNNING) await submit(platform, 'echo-session', { greeting });
  const prompts = Array.from({ length: STORIES }, (_, seed) => ({ prompt: 'Once', maxTokens: 20 + 10 * seed, seed }));
  for (const prompt of prompts) await submit(platform, 'text-completion', prompt);
  await page.locator('#now .tile', { hasText: 'Running' }).locator('dd', { hasText: /^3$/ }).waitFor();
  await page.reload();
  await page.getByText('Live', { exact: true }).waitFor();
  await page.screenshot({ path: OVERVIEW });
  await page.goto(`${platform.url}/dashboard/playground?function=text-completion`);
  await page.getByLabel('temperature').fill('0');
  await page.getByRole('button', { name: 'Run' }).click();
  await page.locator('#run .badge', { hasText: 'succeeded' }).waitFor();
  await page.setViewportSize({ width: 1120, height: 1080 });
  await page.evaluate('scrollTo(0, 0)');
  await page.screenshot({ path: PLAYGROUND });
  for (const file of [OVERVIEW, PLAYGROUND]) console.log(file);
} finally {
  await browser.close();
}
