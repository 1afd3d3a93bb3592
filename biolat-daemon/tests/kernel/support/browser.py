"""Drives Chromium: reads commands from standard input and writes results to standard output, one JSON object per line.

Records faults of the page: console errors, violations of its content security policy and requests to other origins.
"""

import json
import sys
from urllib.parse import urlsplit

from playwright.sync_api import Error, sync_playwright

RECORD_VIOLATIONS = """
window.violations = [];
document.addEventListener('securitypolicyviolation', (event) => violations.push(`${event.violatedDirective} ${event.blockedURI}`));
"""


class Browser:
    def __init__(self, chromium):
        self.chromium = chromium
        self.page = None
        self.recorded = []

    def open(self, url, width=1400, height=900, scheme="dark", script=True, sharpness=1):
        """Opens a page in a new browser context, without any earlier state."""
        if self.page:
            self.page.context.close()
        size = {"width": width, "height": height}
        context = self.chromium.new_context(
            viewport=size, color_scheme=scheme, java_script_enabled=script, device_scale_factor=sharpness
        )
        context.add_init_script(RECORD_VIOLATIONS)
        self.recorded = []
        page = self.page = context.new_page()
        own = self.host(url)
        page.on("console", lambda message: message.type in ("error", "warning") and self.recorded.append(message.text))
        page.on("pageerror", lambda error: self.recorded.append(str(error)))
        page.on("request", lambda request: self.check_request(request.url, own))
        response = page.goto(url)
        return response.all_headers() if response else {}

    def host(self, url):
        return urlsplit(url).netloc.rpartition("@")[2]

    def check_request(self, url, own):
        if urlsplit(url).scheme != "data" and self.host(url) != own:
            self.recorded.append(f"request to another origin: {url}")

    def evaluate(self, text):
        return self.page.evaluate(text)

    def text(self, selector):
        return self.page.inner_text(selector)

    def press(self, key):
        self.page.keyboard.press(key)

    def click(self, selector):
        self.page.click(selector)

    def answer(self, path, status, text=""):
        """Overrides the response for a path; status 0 restores the server's own response."""
        self.page.unroute_all()
        if status:
            self.page.route(
                lambda url: urlsplit(url).path == path,
                lambda route: route.fulfill(status=status, body=text, content_type="text/plain"),
            )

    def hover(self, left, top):
        self.page.mouse.move(left, top)

    def drag(self, points):
        """Presses the mouse button at the first point and releases it at the last one; a single point is a click."""
        self.page.mouse.move(*points[0])
        self.page.mouse.down()
        for point in points[1:]:
            self.page.mouse.move(*point, steps=5)
        self.page.mouse.up()

    def back(self):
        self.page.evaluate("history.back()")

    def select(self, selector, label):
        self.page.select_option(selector, label=label)

    def screenshot(self, path, whole=False):
        self.page.screenshot(path=path, full_page=whole)

    def faults(self):
        """Returns the faults since the page was opened or since the last call."""
        recorded, self.recorded = self.recorded, []
        return recorded + self.page.evaluate("window.violations.splice(0)")


def main():
    with sync_playwright() as playwright:
        # Tests run as root, where Chromium has no sandbox.
        chromium = playwright.chromium.launch(executable_path=sys.argv[1], args=["--no-sandbox"])
        browser = Browser(chromium)
        for line in sys.stdin:
            command = json.loads(line)
            try:
                result = {"done": getattr(browser, command.pop("do"))(**command)}
            except Error as error:
                result = {"error": str(error)}
            print(json.dumps(result), flush=True)
        chromium.close()


main()
