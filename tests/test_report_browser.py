"""Reports as a reader sees them, in a real browser without a window."""

import base64
import io
import json
import shutil

import numpy as np
import pytest
from PIL import Image

from dscca import LinearCCA
from dscca.report import Samples, report_models, report_records
from report_problems import HOSTILE, cloud, digits, experiment, fitted

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs chromium: apt-get install chromium")

CONTRASTS = """() => {
  const channel = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const parse = (c) => (c.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const light = (c) => {
    const [r, g, b] = parse(c).map(channel);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] > 0.5) return getComputedStyle(e).backgroundColor;
    }
    return "rgb(255, 255, 255)";
  };
  const found = [];
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || ["SCRIPT", "NOSCRIPT", "STYLE"].includes(e.tagName)) continue;
    if (e.closest(".modebar-container") || !e.getClientRects().length) continue;
    const style = getComputedStyle(e);
    const ink = e.namespaceURI.endsWith("svg") ? style.fill : style.color;
    const [a, b] = [light(ink), light(ground(e))].sort((p, q) => q - p);
    found.push([(a + 0.05) / (b + 0.05), e.textContent.slice(0, 40)]);
  }
  return found;
}"""


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def models():
    return fitted()


@pytest.fixture(scope="module")
def model_page(models, tmp_path_factory):
    return report_models(models, digits(), tmp_path_factory.mktemp("models") / "report.html")


@pytest.fixture(scope="module")
def record_page(tmp_path_factory):
    return report_records(experiment(), tmp_path_factory.mktemp("records") / "report.html")


@pytest.fixture
def opened(browser):
    """Open a page with nothing but silence on the console and the network, then and after."""
    contexts, noise = [], []

    def open_(path, *, width=1200, scheme="light"):
        context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: noise.append(message.text))
        page.on("pageerror", lambda error: noise.append(str(error)))
        page.on("dialog", lambda dialog: noise.append("a dialog"))
        page.on("request", lambda request: noise.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready=all]", timeout=60_000)
        noise.remove(path.as_uri())
        return page

    yield open_
    for context in contexts:
        context.close()
    # Drivers that draw in software remark on their own speed.
    assert [line for line in noise if "GL Driver Message" not in line and line[:5] != "data:"] == []


def hover_first_point(page, plot):
    """Move the mouse over the first point of a chart of samples, and wait for its picture."""
    plot.evaluate("e => e.scrollIntoView({ block: 'center', behavior: 'instant' })")
    page.wait_for_timeout(300)
    x, y = plot.evaluate("""e => {
      const { xaxis, yaxis } = e._fullLayout, box = e.getBoundingClientRect();
      const { x, y } = e._fullData[0];
      return [box.x + xaxis._offset + xaxis.c2p(x[0]), box.y + yaxis._offset + yaxis.c2p(y[0])];
    }""")
    page.mouse.move(x, y)
    page.wait_for_selector("#tip:not([hidden])", timeout=5000)


@pytest.mark.parametrize("kind", ["model_page", "record_page"])
def test_every_chart_is_drawn(opened, request, kind):
    page = opened(request.getfixturevalue(kind))
    charts = json.loads(page.text_content("#payload"))["charts"]
    assert len(charts) == page.locator(".plot").count() > 3
    for number, options in enumerate(charts):
        plot = page.locator(f'.plot[data-chart="{number}"]')
        for option, figure in enumerate(options):
            if len(options) > 1:
                page.select_option(f'select[data-for="{number}"]', str(option))
            drawn = plot.evaluate("e => e.calcdata.map(t => t.length)")
            assert len(drawn) == len(figure["data"])
            assert min(drawn) > 0
        marks = plot.locator(".scatterlayer path, .barlayer path, .scatterlayer .point")
        assert marks.count() > 0


def test_hover_shows_the_digit(opened, model_page):
    page = opened(model_page)
    samples = digits()
    assert page.locator("#tip").is_hidden()
    hover_first_point(page, page.locator('.plot[data-samples="true"]').nth(1))
    pictures = page.locator("#tip canvas").evaluate_all(
        "all => all.map(c => [Number(c.dataset.row), c.toDataURL()])"
    )
    assert len(pictures) == 2
    for view, (row, source) in zip((samples.x, samples.y), pictures, strict=True):
        image = Image.open(io.BytesIO(base64.b64decode(source.split(",")[1]))).convert("L")
        shown = np.asarray(image) / 255
        np.testing.assert_allclose(shown, view[row].reshape(28, 14), atol=0.04)
    assert f"class {samples.labels[row]}" in page.text_content("#tip")
    page.mouse.move(5, 5)
    page.wait_for_selector("#tip", state="hidden")


def test_thumbnails_are_painted(opened, model_page):
    page = opened(model_page)
    samples = digits()
    drawn = page.locator("canvas.thumb").evaluate_all("""all => all.map(c => [
      c.dataset.view, Number(c.dataset.row),
      [...c.getContext("2d").getImageData(0, 0, c.width, c.height).data]
        .filter((_, i) => i % 4 == 0),
    ])""")
    assert len(drawn) > 20
    for name, row, pixels in drawn:
        view = {"x": samples.x, "y": samples.y}[name]
        np.testing.assert_allclose(np.array(pixels) / 255, view[row], atol=0.04)


def test_tables_sort_by_click_and_keyboard(opened, record_page):
    page = opened(record_page)
    table = page.locator("table.sortable").first
    column = table.locator("thead th").all_text_contents().index("test TC")

    def shown():
        cells = table.locator(f"tbody tr > :nth-child({column + 1})").all_text_contents()
        return [float(cell.split()[0]) for cell in cells]

    header = table.locator("thead th").nth(column)
    before = shown()
    header.locator("button").click()
    assert shown() == sorted(before)
    assert header.get_attribute("aria-sort") == "ascending"
    page.keyboard.press("Enter")
    assert shown() == sorted(before, reverse=True)
    assert header.get_attribute("aria-sort") == "descending"
    table.locator("thead button").first.focus()
    page.keyboard.press("Space")
    names = table.locator("tbody th").all_text_contents()
    assert names == sorted(names, key=str.casefold)
    assert header.get_attribute("aria-sort") is None


def test_missing_figures_are_sorted_last(opened, record_page):
    page = opened(record_page)
    table = page.locator("table.sortable").first
    column = table.locator("thead th").all_text_contents().index("p")
    for _ in range(2):
        table.locator("thead button").nth(column).click()
        assert (
            table.locator(f"tbody tr:last-child > :nth-child({column + 1})").text_content() == "—"
        )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1200])
def test_readable_in_both_schemes_and_on_small_screens(opened, model_page, scheme, width):
    page = opened(model_page, width=width, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    contrasts = page.evaluate(CONTRASTS)
    assert len(contrasts) > 100
    assert [text for ratio, text in contrasts if ratio < 4.5] == []
    outside = page.locator(".plot").evaluate_all(
        "all => all.filter(e => e.querySelector('svg').getBoundingClientRect().right > innerWidth)"
    )
    assert not outside


def test_the_theme_can_be_changed(opened, model_page):
    page = opened(model_page, scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    ink = "getComputedStyle(document.querySelector('.plot .xtick text')).fill"
    before = page.evaluate(f"[{ground}, {ink}]")
    page.click("#theme")
    page.wait_for_function(f"{ink} !== {json.dumps(before[1])}")
    assert min(ratio for ratio, _ in page.evaluate(CONTRASTS)) >= 4.5
    page.click("#theme")
    page.wait_for_function(f"{ink} === {json.dumps(before[1])}")
    assert page.evaluate(f"[{ground}, {ink}]") == before


def test_print_is_light_and_whole(opened, record_page):
    page = opened(record_page, scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert min(ratio for ratio, _ in page.evaluate(CONTRASTS)) >= 4.5
    assert page.locator("details:not([open])").count() == 0
    widths = page.locator(".plot .main-svg").evaluate_all("all => all.map(e => e.clientWidth)")
    assert 200 < min(widths) <= max(widths) < 650  # of the 680 that paper leaves
    page.emulate_media(media="screen", color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.pdf()[:5] == b"%PDF-"
    page.wait_for_timeout(100)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"
    assert min(ratio for ratio, _ in page.evaluate(CONTRASTS)) >= 4.5


def test_hostile_text_is_only_text(opened, models, tmp_path):
    rows = 30
    halves = digits(rows).x, digits(rows).y
    page_file = report_models(
        {HOSTILE: models["cca"], "ds-dcca": models["ds-dcca"]},
        Samples(
            *halves,
            title=HOSTILE,
            ids=[f"{i} {HOSTILE}" for i in range(rows)],
            labels=np.array([HOSTILE, "b"] * (rows // 2)),
            captions=[HOSTILE] * rows,
        ),
        tmp_path / "report.html",
        records=experiment(),
        title=HOSTILE,
        command=HOSTILE,
    )
    page = opened(page_file)
    assert page.title().split() == HOSTILE.split()
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0
    plain = " ".join(HOSTILE.replace("\u2028", " ").split())
    legend = page.locator(".plot .legendtext").all_text_contents()
    assert any(
        plain.startswith(" ".join(text.split()).rstrip("…")) for text in legend if text != "b"
    )
    hover_first_point(page, page.locator('.plot[data-samples="true"]').first)
    assert HOSTILE.split("\u2028")[0] in page.text_content("#tip .words")
    assert page.evaluate("window.hacked") is None
    page.locator(".plot").first.hover()
    assert page.evaluate("window.hacked") is None


def test_thousands_of_points_are_drawn(opened, tmp_path):
    x, y = cloud(10_000)
    model = LinearCCA(2).fit(x[:500], y[:500])
    samples = Samples(x, y, labels=np.arange(10_000) % 10)
    page_file = report_models({"cca": model}, samples, tmp_path / "report.html")
    assert page_file.stat().st_size < 10e6
    page = opened(page_file)
    plot = page.locator('.plot[data-samples="true"]').first
    assert sum(plot.evaluate("e => e.data.map(t => t.customdata.length)")) == 10_000
    plot.scroll_into_view_if_needed()
    page.wait_for_timeout(200)
    image = Image.open(io.BytesIO(plot.screenshot())).convert("RGB")
    assert len(image.getcolors(10**6)) > 50  # coloured points, not an empty frame
    hover_first_point(page, plot)
    assert "class" in page.text_content("#tip")
