"""A browser that does as it is told: a JSON object a line comes in, one with the outcome goes out.

It notes what no page of ours may do: write an error to the console, break its content security policy, or ask anybody but
its own origin for anything.
"""

import json
import sys
from urllib.parse import urlsplit

from playwright.sync_api import Error, sync_playwright

NOTE_VIOLATIONS = """
window.violations = [];
document.addEventListener('securitypolicyviolation', (event) => violations.push(`${event.violatedDirective} ${event.blockedURI}`));
"""


class Browser:
    def __init__(self, chromium):
        self.chromium = chromium
        self.page = None
        self.wrong = []

    def open(self, url, width=1400, height=900, scheme="dark", script=True, sharpness=1):
        """A new window, without anything that the last one knew."""
        if self.page:
            self.page.context.close()
        size = {"width": width, "height": height}
        context = self.chromium.new_context(
            viewport=size, color_scheme=scheme, java_script_enabled=script, device_scale_factor=sharpness
        )
        context.add_init_script(NOTE_VIOLATIONS)
        self.wrong = []
        page = self.page = context.new_page()
        own = self.host(url)
        page.on("console", lambda message: message.type in ("error", "warning") and self.wrong.append(message.text))
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("request", lambda request: self.note_request(request.url, own))
        answer = page.goto(url)
        return answer.all_headers() if answer else {}

    def host(self, url):
        return urlsplit(url).netloc.rpartition("@")[2]

    def note_request(self, url, own):
        if urlsplit(url).scheme != "data" and self.host(url) != own:
            self.wrong.append(f"a request to {url}")

    def evaluate(self, text):
        return self.page.evaluate(text)

    def text(self, selector):
        return self.page.inner_text(selector)

    def press(self, key):
        self.page.keyboard.press(key)

    def click(self, selector):
        self.page.click(selector)

    def hover(self, left, top):
        self.page.mouse.move(left, top)

    def select(self, selector, label):
        self.page.select_option(selector, label=label)

    def screenshot(self, path, whole=False):
        self.page.screenshot(path=path, full_page=whole)

    def faults(self):
        """What was wrong since the page was opened or this was last asked for."""
        wrong, self.wrong = self.wrong, []
        return wrong + self.page.evaluate("window.violations.splice(0)")


def main():
    with sync_playwright() as playwright:
        # Tests run as root, where Chromium has no sandbox.
        chromium = playwright.chromium.launch(executable_path=sys.argv[1], args=["--no-sandbox"])
        browser = Browser(chromium)
        for line in sys.stdin:
            told = json.loads(line)
            try:
                outcome = {"done": getattr(browser, told.pop("do"))(**told)}
            except Error as error:
                outcome = {"error": str(error)}
            print(json.dumps(outcome), flush=True)
        chromium.close()


main()
