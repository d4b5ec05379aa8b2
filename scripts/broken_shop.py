"""A C project that does not compile, tests that fail, and what `whose_line.py` expects of both."""

from __future__ import annotations

from typing import Final

# Where the build waits to be let go on, so that what happens meanwhile is the same in each run.
STOPS: Final = ("stop-1", "stop-2", "stop-3")
SOURCES: Final = {
    "Makefile": """\
        CC = gcc
        CFLAGS = -Wall -O2
        shop: parse.o stop-1 render.o stop-2 prices.o stop-3 total.o main.o
        \t$(CC) -o $@ parse.o render.o prices.o total.o main.o
        %.o: %.c shop.h
        \t$(CC) $(CFLAGS) -c -o $@ $<
        stop-%:
        \t@echo "$@ is reached"; echo $@ > $(GATES)/bell; read -r _ < $(GATES)/$@
        """,
    "shop.h": """\
        struct box { int width, height, price; };
        int parse(const char *text);
        int area(const struct box *box);
        int price_of(const struct box *box);
        int total(const struct box *boxes, int count);
        """,
    "parse.c": """\
        #include <stdlib.h>
        #include "shop.h"
        int parse(const char *text)
        {
            int unused;
            return atoi(text);
        }
        """,
    "render.c": """\
        #include "shop.h"
        int area(const struct box *box)
        {
            int area = box->height;
            area *= box->widht;
            return area;
        }
        """,
    "prices.c": """\
        #include "shop.h"
        int price_of(const struct box *box)
        {
            int price = box->price;
            price -= rebate;
            return price;
        }
        """,
    "total.c": """\
        #include "shop.h"
        int total(const struct box *boxes, int count)
        {
            int sum = 0;
            while (count = count - 1)
                sum += price_of(&boxes[count]);
            return sum;
        }
        """,
    "main.c": """\
        #include "shop.h"
        int main(void)
        {
            struct box box = {2, 3, 5};
            return total(&box, 1);
        }
        """,
    "test_prices.py": """\
        import os, unittest

        def setUpModule():
            with open(os.environ["GATES"] + "/tests") as gate:
                gate.readline()

        class Prices(unittest.TestCase):
            def test_sum(self):
                self.assertEqual(2 + 3, 5)

            def test_tax(self):
                self.assertEqual(round(1.19 * 100), 120)
        """,
}
BUILD: Final = "make -k"
TESTS: Final = "python3 -m unittest test_prices"
OWN: Final = {
    "builder": "make: *** [Makefile:6: render.o] Error 1",
    "tester": "AssertionError: 119 != 120",
}
# Lines of level warning or worse. Of the build up to its second stop: one of each from gcc, and
# make's word; of a run of the tests: their head, four of a traceback, their sum, the task's end.
SEVERE_BEFORE_STOP: Final = 3
SEVERE_OF_TESTS: Final = 7
